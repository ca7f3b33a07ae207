-- Calls with group, shapes and call site in words.
-- A member of a P2P batch stays "scheduled" for ever: whether it finished is told by the entry that
-- closes its batch, which shares its P2P sequence number (pytorch issue 137969).
CREATE VIEW calls_flat AS
WITH closed AS (
    SELECT DISTINCT dump_id, group_id, p2p_seq
    FROM calls
    WHERE op LIKE '%coalesced' AND p2p_seq > 0 AND (retired OR state = 'completed')
),
last_sign AS (
    SELECT dump_id, max(greatest(created_ns, coalesce(completed_ns, 0))) AS last_ns
    FROM calls GROUP BY dump_id
)
SELECT
    c.call_id,
    c.rank,
    coalesce(r.host, '') AS host,
    g.name AS group_name,
    g.description AS group_description,
    g.size AS group_size,
    c.seq,
    c.p2p_seq,
    c.op,
    CASE WHEN c.src_group_rank IS NULL AND c.dst_group_rank IS NULL THEN NULL
         WHEN c.op LIKE '%recv%' THEN sender.rank ELSE receiver.rank END AS peer,
    s.input_sizes,
    s.input_dtypes,
    c.state,
    c.retired,
    c.retired OR c.state = 'completed' OR closed.dump_id IS NOT NULL AS finished,
    c.created_ns,
    greatest(coalesce(d.time_ns, last_sign.last_ns) - c.created_ns, 0) / 1e6 AS waited_ms,
    f.file || ':' || f.line || ' ' || f.function AS site,
    c.collective_id
FROM calls c
LEFT JOIN groups g USING (group_id)
LEFT JOIN signatures s USING (signature_id)
LEFT JOIN stacks k USING (stack_id)
LEFT JOIN frames f ON f.frame_id = k.site_frame_id
LEFT JOIN ranks r ON r.rank = c.rank
LEFT JOIN dumps d ON d.dump_id = c.dump_id
LEFT JOIN last_sign ON last_sign.dump_id = c.dump_id
LEFT JOIN members sender
    ON sender.group_id = c.group_id AND sender.group_rank = c.src_group_rank
LEFT JOIN members receiver
    ON receiver.group_id = c.group_id AND receiver.group_rank = c.dst_group_rank
LEFT JOIN closed
    ON c.is_p2p AND c.op NOT LIKE '%coalesced'
    AND closed.dump_id = c.dump_id AND closed.group_id = c.group_id AND closed.p2p_seq = c.p2p_seq
