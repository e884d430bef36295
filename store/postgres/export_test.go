package postgres

// Texts are the statements whose plans are tested, by name.
func (s *Store) Texts() map[string]string {
	return map[string]string{
		"read":                        s.sql.read[0][0],
		"read some topics":            s.sql.read[0][1],
		"read gaps":                   s.sql.read[1][0],
		"read gaps of some topics":    s.sql.read[1][1],
		"settle by place":             s.sql.settleByPlace.cursor,
		"take over":                   s.sql.takeOver,
		"list what is open":           s.sql.open,
		"claim due":                   s.sql.claimDue,
		"claim a lane":                s.sql.claimLane,
		"claim parked of an endpoint": s.sql.claimParked,
	}
}

// Settings is the statement that prepares a connection.
const Settings = settings
