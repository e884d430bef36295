package envelope

import "github.com/pillarbox-dev/pillarbox/relay"

// payload sends the producer's bytes as they are, without looking at them.
type payload struct{}

func (payload) Wrap(e *relay.Event) (Message, error) {
	m := Message{Key: laneKey(e), Value: e.Payload, Time: e.CreatedAt}
	switch {
	case e.Payload == nil:
	case e.Binary:
		m.ContentType = typeBinary
	default:
		m.ContentType = typeJSON
	}
	return m, nil
}
