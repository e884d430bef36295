package ops

// jobPlanCases are the statements of jobs and retention.
func jobPlanCases() []planCase {
	const anything = "'', '', '', '', '', '', null, null"
	return []planCase{
		{"seq_at", "5", 1},
		{"last_seq", "", 1},
		{"job_open", "'d', 0, 1000000, 64, " + anything, 128}, // of each status
		{"job_open", "'d', 0, 1000000, 64, 'k', 'A', '1', 'T', 'C', 'e', 1, 2", 128},
		{"job_log", "'d', 0, 1000000, 64, " + anything, 64},
		{"job_log", "'d', 20000, 1000000, 64, 'k', 'A', '1', 'T', 'C', 'e', 1, 2", 64},
		{"job_due", "'d', 64", 64},
		{"job_running", "", 1},
		{"job_topics", "'d'", 1},
		{"job_hold_events", "'[2,3]'", 2},
		{"job_hold", `'d', '[2,3]', '["QUARANTINED","FAILED"]', '', ''`, 2},
		{"job_record", "'d', '[2,3]', 'ann', 'retry', 'why', 'PENDING', false", 2},
		{"job_go", "'d', '[2,3]', true", 2},
		{"job_go_new", "'d', '[10,11]'", 2},
		{"job_discard", "'d', '[2,3]'", 2},
		{"retention_ends", "", 2},
		{"retention_ledgers", "", 3},
		{"retention_look", "0, 1000000, 64", 64},
		{"retention_hold", "'[2,3]'", 2},
		{"retention_settled", `'[2,3]', '["d"]'`, 2},
		{"retention_archive_events", "'[2,3]'", 2},
		{"retention_archive_deliveries", `'[2,3]', '["d"]'`, 2},
		{"retention_delete_deliveries", `'[2,3]', '["d"]'`, 2},
		{"retention_delete_events", "'[10,11]'", 2},
	}
}
