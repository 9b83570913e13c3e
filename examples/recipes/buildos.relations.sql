-- What the five relations of a planner hold of one session, a line for each row.
SELECT printf('plan %s: %s, %s', coalesce(round, '-'), strategy, status) FROM planner_plans WHERE session = ?1
UNION ALL
SELECT printf('agent %s of step %s: %s', type, coalesce(step, '-'), permission) FROM planner_agents WHERE parent = ?1
UNION ALL
SELECT printf('conversation of step %s: %s, %d messages', coalesce(step, '-'), status, messages)
FROM planner_conversations WHERE parent = ?1 AND kind = 'planner_executor'
UNION ALL
SELECT printf('%s in turn %d: %s', sender, turn, kind) FROM planner_messages WHERE parent = ?1 AND kind IS NOT NULL AND sender <> 'system'
UNION ALL
SELECT printf('execution of step %d by the %s: %s, %d tool calls', step, performer, status, tool_calls)
FROM planner_executions WHERE session = ?1;
