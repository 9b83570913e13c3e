WITH recorded AS (
    SELECT session, run, agent, seq, at, json_body -> 'value' AS value
    FROM events WHERE kind = 'record:planner.progress'
),
created AS (
    SELECT session, run, agent, seq, at, value -> 'plan_created' AS plan
    FROM recorded WHERE value -> 'plan_created' IS NOT NULL
    UNION ALL
    -- A request that was done without a plan, or whose planner asked the user.
    SELECT session, run, min(agent), min(seq), min(at), NULL
    FROM recorded GROUP BY session, run HAVING count(value -> 'plan_created') = 0
),
ended AS (
    SELECT session, run, at, value -> 'plan_ended' AS plan
    FROM recorded WHERE value -> 'plan_ended' IS NOT NULL
),
about AS (
    SELECT session, run, max(value -> 'analyzed' ->> 'strategy') AS strategy,
           max(value -> 'analyzed' ->> 'reasoning') AS reasoning,
           max(CASE WHEN value -> 'analyzed' -> 'by_words' = 'true' THEN 1
                    WHEN value -> 'analyzed' IS NOT NULL THEN 0 END) AS by_words,
           max(value -> 'user_asked' -> 'questions') AS questions
    FROM recorded GROUP BY session, run
)
SELECT created.session, created.run, created.agent, created.seq, CAST(created.plan ->> 'round' AS bigint) AS round,
       runs.prompt AS user_message,
       -- What follows the answer to a question of the planner is not classified once more.
       coalesce(about.strategy, 'complex') AS strategy, about.reasoning, about.by_words,
       created.plan -> 'steps' AS steps, about.questions,
       CASE WHEN ended.plan IS NOT NULL THEN ended.plan ->> 'status'
            WHEN runs.status IN ('running', 'paused') THEN 'executing'
            WHEN runs.status = 'completed' AND created.plan IS NULL THEN 'completed' ELSE 'failed' END AS status,
       created.at AS created_at,
       CASE WHEN created.plan IS NULL THEN runs.finished_at ELSE ended.at END AS finished_at
FROM created
JOIN about ON about.session = created.session AND about.run = created.run
JOIN agent_executions AS runs ON runs.session = created.session AND runs.run = created.run
LEFT JOIN ended ON ended.session = created.session AND ended.run = created.run
    AND ended.plan ->> 'round' = created.plan ->> 'round'
