-- Calls that have not finished, oldest first, with who is absent from each.
-- Absent is not always missing: a dump's window may not cover the call.
CREATE VIEW stuck_calls AS
WITH present AS (
    SELECT DISTINCT collective_id, group_id, rank FROM calls WHERE collective_id IS NOT NULL
),
absent AS (
    SELECT q.collective_id, list(m.rank ORDER BY m.rank) AS absent_ranks
    FROM (
        SELECT DISTINCT collective_id, group_id FROM calls
        WHERE collective_id IS NOT NULL AND NOT retired AND state NOT IN ('completed', 'failed')
    ) q
    JOIN members m USING (group_id)
    LEFT JOIN present p ON p.collective_id = q.collective_id AND p.rank = m.rank
    WHERE p.rank IS NULL
    GROUP BY q.collective_id
)
SELECT
    c.call_id,
    c.rank,
    c.group_name,
    c.group_description,
    c.seq,
    c.p2p_seq,
    c.op,
    c.peer,
    c.state,
    c.created_ns,
    c.site,
    c.group_size,
    o.joined,
    coalesce(absent.absent_ranks, []::INTEGER[]) AS absent_ranks
FROM calls_flat c
LEFT JOIN collectives o USING (collective_id)
LEFT JOIN absent USING (collective_id)
WHERE NOT c.finished AND c.state <> 'failed'
ORDER BY c.created_ns, c.call_id
