module github.com/pillarbox-dev/pillarbox/outbox

go 1.26.0
