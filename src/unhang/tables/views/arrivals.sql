-- Who came when to each collective. A rank with several calls under one number (a coalesced
-- collective) arrives with the first of them.
CREATE VIEW arrivals AS
WITH came AS (
    SELECT collective_id, rank, min(created_ns) AS created_ns
    FROM calls
    WHERE collective_id IS NOT NULL AND created_ns IS NOT NULL
    GROUP BY collective_id, rank
)
SELECT
    a.collective_id,
    g.name AS group_name,
    g.description AS group_description,
    o.seq,
    o.op,
    a.rank,
    a.created_ns,
    (a.created_ns - min(a.created_ns) OVER same) / 1e6 AS late_ms,
    row_number() OVER (PARTITION BY a.collective_id ORDER BY a.created_ns, a.rank) AS place,
    a.created_ns = max(a.created_ns) OVER same AS is_last
FROM came a
JOIN collectives o USING (collective_id)
JOIN groups g USING (group_id)
WINDOW same AS (PARTITION BY a.collective_id)
