package ops

// watchPlanCases are the statements of reconciliation, heartbeats and resets.
func watchPlanCases() []planCase {
	return []planCase{
		{"reconcile_cursors", "", 1000}, // the gaps
		{"reconcile_log", "'d', 0, 1000000, 64, '[]'", 65},
		{"reconcile_log", `'d', 0, 1000000, 64, '["a*","b"]'`, 128},
		{"reconcile_ledger", "'d', 0, 1000000, 64", 65},
		{"reconcile_published", "'d', 0, 1000000, 64", 64},
		{"reconcile_inbox", `'c', '["id-1","id-2"]'`, 2},
		{"inbox", "'c', 64, 64", 64},
		{"heartbeat_due", "'h'", 1},
		{"heartbeat_end", "", 1},
		{"heartbeat_count", "0, 64, '[[10,12],[20,22]]'", 80},
		{"heartbeat_store", "'h', '{}', 1", 1},
		{"heartbeat_failed", "'h', 'x'", 1},
		{"reset_forget", "'d', 100, 64", 64},
	}
}
