package consumers

import (
	"fmt"
	"regexp"
	"strings"
)

// template is the name at a broker that messages go to: a text in which {tenant} and
// {topic} stand for the message's.
type template struct {
	text   string
	varies bool                    // it holds one of them
	valid  func(name string) error // whether the broker knows such names
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// parseTemplate reads a template; what names it in errors.
func parseTemplate(what, text string, valid func(string) error) (template, error) {
	t := template{text: text, valid: valid}
	for _, p := range placeholder.FindAllString(text, -1) {
		if p != "{tenant}" && p != "{topic}" {
			return t, fmt.Errorf("has %s in its %s; it accepts {tenant} and {topic}", p, what)
		}
		t.varies = true
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(text, ""), "{}") {
		return t, fmt.Errorf("has a lone brace in its %s", what)
	}
	if err := valid(t.of(Delivery{Tenant: "tenant", Topic: "topic"})); err != nil {
		return t, fmt.Errorf("has a wrong %s: %w", what, err)
	}
	return t, nil
}

// of is the name for a message.
func (t template) of(d Delivery) string {
	if !t.varies {
		return t.text
	}
	return strings.NewReplacer("{tenant}", d.Tenant, "{topic}", d.Topic).Replace(t.text)
}

// blame is the verdict where the broker does not know or does not give a name. One
// that is the same for all messages is the configuration's fault, and holds them;
// one made of what the producer sent is this message's, or anybody could stop
// everybody's deliveries with a topic of his own.
func (t template) blame(err error) error {
	if t.varies {
		return err
	}
	return Overloaded(0, err)
}
