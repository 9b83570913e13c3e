WITH places AS MATERIALIZED (
    SELECT DISTINCT session || '$$strategy' AS session, session AS parent, 'strategy' AS type, NULL AS run,
           CAST(NULL AS bigint) AS round, CAST(NULL AS bigint) AS step
    FROM planner_plans
    UNION ALL
    SELECT planner, parent, 'planner', run, round, step FROM planner_conversations
    UNION ALL
    SELECT executor, parent, 'executor', run, round, step FROM planner_conversations WHERE executor IS NOT NULL
),
asked AS MATERIALIZED (
    SELECT session, agent, seq, model, instructions, tools,
           row_number() OVER (PARTITION BY session ORDER BY seq DESC) AS place
    FROM requests
),
contents AS MATERIALIZED (
    SELECT session, digest, text FROM request_contents
)
SELECT places.session, places.parent, places.type, places.run, places.round, places.step, asked.agent, asked.seq,
       asked.model, tools.text AS tools,
       CASE places.type WHEN 'planner' THEN 'read_write' WHEN 'executor' THEN 'read' ELSE 'none' END AS permission,
       instructions.text AS system_prompt, sessions.status, sessions.input_tokens, sessions.output_tokens,
       sessions.cost_pico
FROM places
JOIN asked ON asked.session = places.session AND asked.place = 1
JOIN sessions ON sessions.id = places.session
LEFT JOIN contents AS tools ON tools.session = places.session AND tools.digest = asked.tools
LEFT JOIN contents AS instructions
    ON instructions.session = places.session AND instructions.digest = asked.instructions
