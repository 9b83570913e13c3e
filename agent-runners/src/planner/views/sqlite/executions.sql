WITH RECURSIVE below (top, id) AS (
    SELECT conversation, conversation FROM planner_steps WHERE conversation IS NOT NULL
    UNION
    SELECT below.top, sessions.id FROM below JOIN sessions ON sessions.parent = below.id
),
done AS MATERIALIZED (
    SELECT session,
           -- By `reply` an executor only talks.
           count(CASE WHEN kind = 'tool_finished' AND json_body -> 'result' ->> 'name' <> 'reply' THEN 1 END) AS tool_calls,
           count(CASE WHEN kind = 'record:planner.message' THEN 1 END) AS messages
    FROM events WHERE kind IN ('tool_finished', 'record:planner.message') GROUP BY session
),
counts AS (
    SELECT below.top, sum(done.tool_calls) AS tool_calls, sum(done.messages) AS messages
    FROM below JOIN done ON done.session = below.id GROUP BY below.top
)
SELECT steps.session, steps.run, steps.agent, steps.seq, steps.round, steps.step, steps.performer, steps.conversation,
       CASE steps.performer WHEN 'executor' THEN steps.conversation || '$$executor' END AS executor,
       steps.description AS task, steps.tools, steps.status,
       CASE steps.status WHEN 'completed' THEN 1 WHEN 'failed' THEN 0 END AS success, steps.result, steps.error,
       steps.input_tokens, steps.output_tokens, steps.cost_pico, steps.started_at, steps.finished_at, steps.micros,
       CAST(coalesce(counts.tool_calls, 0) AS bigint) AS tool_calls,
       CAST(coalesce(counts.messages, 0) AS bigint) AS messages
FROM planner_steps AS steps
LEFT JOIN counts ON counts.top = steps.conversation
WHERE steps.conversation IS NOT NULL
