-- Purpose: what large payloads of a lane's batch say at a few places, without bringing them whole. Keeps I11.
-- Index: event's primary key, in the partitions of the days $3 to $4. OFFSET 0: each payload is parsed once.
-- $5: the places, as a list of paths. $6, $7: texts of more than $6 characters come as NULL, others cut to $7.
-- Rows: one for each of the events $2 and each place that says something; both are few.
WITH place AS MATERIALIZED (
    SELECT p.number, ARRAY(
        SELECT t.token FROM jsonb_array_elements_text(p.path) WITH ORDINALITY AS t (token, n) ORDER BY t.n
    ) AS path
    FROM jsonb_array_elements($5::text::jsonb) WITH ORDINALITY AS p (path, number)
)
SELECT e.seq, place.number,
       CASE WHEN jsonb_typeof(v.said) = 'string' AND char_length(v.text) <= $6::int THEN to_jsonb(left(v.text, $7::int))::text
            WHEN jsonb_typeof(v.said) <> 'string' AND char_length(v.text) <= $7::int THEN v.text END AS said
FROM lanekeeper.event AS e
CROSS JOIN LATERAL (SELECT e.payload::jsonb AS payload OFFSET 0) AS whole
CROSS JOIN place
CROSS JOIN LATERAL (SELECT s.said, s.said #>> '{}' AS text FROM (SELECT whole.payload #> place.path OFFSET 0) AS s (said)) AS v
WHERE e.session_id = $1 AND e.seq = ANY ($2::bigint[]) AND e.day BETWEEN $3 AND $4
  AND jsonb_typeof(v.said) IN ('string', 'number', 'boolean')
