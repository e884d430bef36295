package postgres

import "github.com/pillarbox-dev/pillarbox/relay"

// Texts are the statements whose plans are tested, by name.
func (s *Store) Texts(shard relay.Shard) map[string]string {
	texts := s.statements(shard)
	return map[string]string{
		"read":                        texts.read[0][0],
		"read some topics":            texts.read[0][1],
		"read gaps":                   texts.read[1][0],
		"read gaps of some topics":    texts.read[1][1],
		"settle by place":             texts.settleByPlace.cursor,
		"take over":                   texts.takeOver,
		"take what is gone":           texts.missing,
		"list what is open":           texts.open,
		"claim due":                   texts.claimDue,
		"claim a lane":                texts.claimLane,
		"claim parked of an endpoint": texts.claimParked,
	}
}

// Settings is the statement that prepares a connection.
const Settings = settings
