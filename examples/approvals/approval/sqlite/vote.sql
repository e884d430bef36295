insert into approval_vote (approval_id, approver)
select id, ?2 from approval where id = ?1
    on conflict (approval_id, approver) do nothing
