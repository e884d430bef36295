select event_id from approval_change where approval_id = ?1 and class = 'use'
