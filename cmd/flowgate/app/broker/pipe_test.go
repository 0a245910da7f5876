package broker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pipes gives a buffered end and the other side.
func pipes() (*pipe, net.Conn) {
	a, b := net.Pipe()
	return newPipe(a), b
}

func TestPipeDoesNotWaitForTheOtherSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := pipes()
		var want []byte
		for i := range 1000 {
			line := bytes.Repeat([]byte{byte(i)}, 100)
			want = append(want, line...)
			if n, err := p.Write(line); n != 100 || err != nil {
				t.Fatalf("write %d: %d, %v", i, n, err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(other)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes arrived before the end, as they were written: %v, %v", len(got), len(want), bytes.Equal(got, want), err)
		}
		if _, err := p.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after Close: %v", err)
		}
	})
}

func TestPipeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := pipes()
		chunk := make([]byte, 64<<10)
		began := time.Now()
		if err := p.SetWriteDeadline(began.Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var err error
		n := 0
		for ; err == nil && n < 100; n++ {
			_, err = p.Write(chunk)
		}
		// A full buffer is on its way beside the one that fills; the last write failed.
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 2*pipeBuffer/len(chunk)+1 || time.Since(began) != 3*time.Second {
			t.Errorf("%d writes of 64 KiB, then %v after %s", n, err, time.Since(began))
		}
		// Room again: it goes on.
		_ = p.SetWriteDeadline(time.Time{})
		go func() { _, _ = io.Copy(io.Discard, other) }()
		if _, err := p.Write(chunk); err != nil {
			t.Error(err)
		}
		_ = p.Close()
		synctest.Wait()
	})
}

func TestPipeTellsThatTheOtherSideIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := pipes()
		_ = other.Close()
		_, _ = p.Write([]byte("lost"))
		synctest.Wait()
		if _, err := p.Write([]byte("x")); err == nil {
			t.Error("a write to nobody succeeded")
		}
		if _, err := p.Read(make([]byte, 1)); err == nil {
			t.Error("a read from nobody succeeded")
		}
		_ = p.Close()
	})
}

// A side that does not read cannot keep it open.
func TestPipeCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := pipes()
		_, _ = p.Write(make([]byte, 1000))
		_ = p.Close()
		time.Sleep(2 * pipeLinger)
		if _, err := io.ReadAll(other); err != nil {
			t.Error(err)
		}
	})
}
