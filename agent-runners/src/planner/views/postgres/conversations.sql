WITH firsts AS (
    SELECT session, agent, prompt, row_number() OVER (PARTITION BY session ORDER BY seq) AS place
    FROM agent_executions
),
talks AS (
    SELECT conversation AS session, session AS parent, run, round, step,
           CASE performer WHEN 'executor' THEN 'planner_executor' ELSE 'planner_thinking' END AS kind, executor,
           CASE performer WHEN 'executor' THEN messages END AS messages, status
    FROM planner_executions
    UNION ALL
    SELECT DISTINCT session || '$$planner', session, NULL, CAST(NULL AS bigint), CAST(NULL AS bigint),
           'planner_thinking', NULL, CAST(NULL AS bigint), NULL
    FROM planner_plans
)
SELECT talks.session, talks.parent, talks.run, firsts.agent, talks.round, talks.step, talks.kind,
       CASE talks.kind WHEN 'planner_executor' THEN talks.session || '$$planner' ELSE talks.session END AS planner,
       talks.executor, firsts.prompt AS initial_context,
       coalesce(talks.status, CASE sessions.status WHEN 'idle' THEN 'completed' ELSE 'executing' END) AS status,
       coalesce(talks.messages, sessions.messages) AS messages
FROM talks
JOIN sessions ON sessions.id = talks.session
LEFT JOIN firsts ON firsts.session = talks.session AND firsts.place = 1
