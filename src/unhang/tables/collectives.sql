-- One row for each sequence number of each group, from the calls of all its members.
INSERT INTO collectives
SELECT
    c.collective_id,
    any_value(c.group_id),
    any_value(c.seq),
    mode(c.op),
    count(DISTINCT c.op),
    count(DISTINCT c.signature_id),
    any_value(g.size),
    count(DISTINCT c.rank),
    greatest(any_value(g.size) - count(DISTINCT c.rank), 0),
    count(DISTINCT c.rank) FILTER (WHERE c.retired OR c.state = 'completed'),
    min(c.created_ns),
    max(c.created_ns),
    arg_max(c.rank, c.created_ns)
FROM calls c
JOIN groups g USING (group_id)
WHERE c.collective_id IS NOT NULL
GROUP BY c.collective_id
ORDER BY c.collective_id
