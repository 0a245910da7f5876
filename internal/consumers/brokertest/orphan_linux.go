package brokertest

import "syscall"

// endWithTest sees to it that the program does not outlive a test that is killed:
// it is told when the thread that started it ends.
func endWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
