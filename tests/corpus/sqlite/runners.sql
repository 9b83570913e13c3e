-- Sessions of composed agents as version 0.1 stored them. Never edit this file: it stands for the files that users have.
PRAGMA application_id = 1164866663;
PRAGMA user_version = 3;
CREATE TABLE sessions (
    id                 TEXT    NOT NULL PRIMARY KEY,
    parent             TEXT             REFERENCES sessions (id) ON DELETE CASCADE,
    role               TEXT    NOT NULL,
    created            INTEGER NOT NULL,
    seq                INTEGER NOT NULL CHECK (seq >= 0),
    status             TEXT    NOT NULL CHECK (status IN ('idle', 'running', 'paused')),
    run                TEXT,
    agent              TEXT    NOT NULL,
    title              TEXT    NOT NULL,
    messages           INTEGER NOT NULL CHECK (messages >= 0),
    input_tokens       INTEGER CHECK (input_tokens >= 0),
    output_tokens      INTEGER CHECK (output_tokens >= 0),
    cache_read_tokens  INTEGER CHECK (cache_read_tokens >= 0),
    cache_write_tokens INTEGER CHECK (cache_write_tokens >= 0),
    reasoning_tokens   INTEGER CHECK (reasoning_tokens >= 0),
    cost_pico          INTEGER CHECK (cost_pico >= 0),
    updated            INTEGER NOT NULL
, lease_owner      INTEGER, lease_generation INTEGER CHECK (lease_generation >= 0), lease_until      INTEGER
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL) AND (lease_generation IS NULL) = (lease_until IS NULL)), checkpoint       INTEGER NOT NULL DEFAULT 0 CHECK (checkpoint >= 0)) STRICT;
CREATE TABLE events (
    session TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    agent   TEXT    NOT NULL,
    writer  INTEGER NOT NULL,
    body    TEXT    NOT NULL, json_body TEXT GENERATED ALWAYS AS (CASE WHEN json_valid(body) THEN body END) VIRTUAL,
    PRIMARY KEY (session, seq)
) STRICT;
INSERT INTO sessions VALUES ('abandoned', NULL, 'user', 1767225600000000, 13, 'running', '01a205e6-82fe-71ba-aaf5-6d93299ab06e', 'pair', 'Write it.', 2, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, -2038653204700510660, 1, 1767225630000000, 11);
INSERT INTO sessions VALUES ('abandoned$$discriminator', 'abandoned', 'discriminator', 1767225600000000, 6, 'idle', NULL, 'reviewer', 'Summary one.', 4, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, -2038653204700510660, 1, 0, 0);
INSERT INTO sessions VALUES ('abandoned$$executor', 'abandoned', 'executor', 1767225600000000, 15, 'running', 'b168ccdf-b1db-851d-ae51-2dbebe56f47d', 'coder', 'Write it.', 6, 20, 10, NULL, NULL, NULL, NULL, 1767225600000000, -2038653204700510660, 1, 1767225630000000, 5);
INSERT INTO sessions VALUES ('checked', NULL, 'user', 1767225600000000, 14, 'idle', NULL, 'pair', 'Write it.', 2, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, -2038653204700510660, 1, 0, 0);
INSERT INTO sessions VALUES ('checked$$discriminator', 'checked', 'discriminator', 1767225600000000, 12, 'idle', NULL, 'reviewer', 'Summary one.', 7, 20, 10, NULL, NULL, NULL, NULL, 1767225600000000, -2038653204700510660, 1, 0, 0);
INSERT INTO sessions VALUES ('checked$$executor', 'checked', 'executor', 1767225600000000, 17, 'idle', NULL, 'coder', 'Write it.', 8, 40, 20, NULL, NULL, NULL, NULL, 1767225600000000, -2038653204700510660, 1, 0, 5);
INSERT INTO sessions VALUES ('killed', NULL, 'user', 1767225600000000, 10, 'running', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 'It is spring.', 1, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, 8510147458637450073, 1, 1767225630000000, 0);
INSERT INTO sessions VALUES ('killed.6$$0', 'killed', 'node', 1767225600000000, 4, 'idle', NULL, 'scout', 'Look left.', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('killed.8$$0', 'killed', 'node', 1767225600000000, 2, 'running', '01a205e6-8304-75f6-b08a-6fab6bb3a4ea', 'scout', 'Look right.', 1, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, 8510147458637450073, 1, 1767225630000000, 0);
INSERT INTO sessions VALUES ('paused', NULL, 'user', 1767225600000000, 15, 'paused', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 'It is spring.', 1, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('paused.11$$0', 'paused', 'node', 1767225600000000, 4, 'idle', NULL, 'writer', 'Report. <result of="looks"> ["Looked.","Looked."] </result>', 1, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('paused.13$$0', 'paused', 'node', 1767225600000000, 4, 'idle', NULL, 'writer', 'Report. <result of="looks"> ["Looked.","Looked."] </result>', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('paused.6$$0', 'paused', 'node', 1767225600000000, 4, 'idle', NULL, 'scout', 'Look left.', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('paused.8$$0', 'paused', 'node', 1767225600000000, 4, 'idle', NULL, 'scout', 'Look right.', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('planned', NULL, 'user', 1767225600000000, 17, 'idle', NULL, 'plan', 'It is spring.', 2, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('planned.11$$0', 'planned', 'node', 1767225600000000, 4, 'idle', NULL, 'writer', 'Report. <result of="looks"> ["Looked.","Looked."] </result>', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('planned.13$$0', 'planned', 'node', 1767225600000000, 4, 'idle', NULL, 'artist', 'Draw it. <result of="looks"> ["Looked.","Looked."] </result>', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('planned.15$$0', 'planned', 'node', 1767225600000000, 4, 'idle', NULL, 'head', 'Sign it. <result of="report"> All is well. </result> <result of="picture">…', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('planned.6$$0', 'planned', 'node', 1767225600000000, 4, 'idle', NULL, 'scout', 'Look left.', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('planned.8$$0', 'planned', 'node', 1767225600000000, 4, 'idle', NULL, 'scout', 'Look right.', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('shop', NULL, 'user', 1767225600000000, 4, 'paused', '01a205e6-8301-7781-af84-8c8fc83b41ce', 'shop', 'It is evening.', 1, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('shop.3$$0', 'shop', 'node', 1767225600000000, 5, 'paused', '01a205e6-8301-7781-af84-8c90ea221dd7', 'buyer', 'Buy a pear. <task> It is evening. </task>', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO sessions VALUES ('shop.3$$0.3$$0', 'shop.3$$0', 'child', 1767225600000000, 5, 'paused', '01a205e6-8301-7781-af84-8c9121fb167f', 'cashier', 'Sub-agent cashier', 2, 10, 5, NULL, NULL, NULL, NULL, 1767225600000000, 8510147458637450073, 1, 0, 0);
INSERT INTO events VALUES ('abandoned', 1, 1767225600000000, 'run_started', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"format":1,"agent":"pair","prompt":{"role":"user","parts":[{"text":"Write it."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned', 2, 1767225600000000, 'phase_started', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":1,"phase":"execute","child":"abandoned$$executor","run":"650ef0ac-7ec3-8bd3-9fa3-6441bad84073","prompt":{"role":"user","parts":[{"text":"Write it."}]}}');
INSERT INTO events VALUES ('abandoned', 3, 1767225600000000, 'phase_finished', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":1,"phase":"execute","outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"I wrote it."}');
INSERT INTO events VALUES ('abandoned', 4, 1767225600000000, 'phase_started', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":1,"phase":"summarize","child":"abandoned$$executor","run":"64746b11-5d9f-848c-8ef7-bb811edcc9a3","prompt":{"role":"user","parts":[{"text":"Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain."}]}}');
INSERT INTO events VALUES ('abandoned', 5, 1767225600000000, 'phase_finished', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":1,"phase":"summarize","outcome":{"status":"completed","text":"Summary one.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"Summary one."}');
INSERT INTO events VALUES ('abandoned', 6, 1767225600000000, 'phase_started', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":1,"phase":"check","child":"abandoned$$discriminator","run":"9d75b32c-7715-885c-a4f9-120f3c647808","prompt":{"role":"user","parts":[{"text":"Summary one."}]}}');
INSERT INTO events VALUES ('abandoned', 7, 1767225600000000, 'phase_finished', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":1,"phase":"check","outcome":{"status":"completed","text":"Test it.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"Test it.","verdict":{"accepted":false,"reason":"Test it."}}');
INSERT INTO events VALUES ('abandoned', 8, 1767225600000000, 'phase_started', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":2,"phase":"execute","child":"abandoned$$executor","run":"125667e9-2ad7-89eb-9bd0-476cac5eb1eb","prompt":{"role":"user","parts":[{"text":"Test it."}]}}');
INSERT INTO events VALUES ('abandoned', 9, 1767225600000000, 'phase_finished', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"iteration":2,"phase":"execute","outcome":{"status":"cancelled","text":"","usage":{},"cost":null,"steps":1},"text":""}');
INSERT INTO events VALUES ('abandoned', 10, 1767225600000000, 'run_paused', '01a205e6-82fd-773b-832c-c5768d3d2738', 'pair', 1, '{"pause":"asked"}');
INSERT INTO events VALUES ('abandoned', 11, 1767225600000000, 'checkpoint', '01a205e6-82fe-71ba-aaf5-6d93299ab06e', 'pair', 1, '{"state":{"history":[{"role":"user","parts":[{"text":"Write it."}]}],"head":{"seq":10,"status":"paused","run":"01a205e6-82fd-773b-832c-c5768d3d2738","agent":"pair","title":"Write it.","messages":1,"usage":{},"cost":0,"checkpoint":0,"updated":1767225600000000},"tokens":3,"context":{"input":0,"output":0,"estimated":false},"estimated":false,"run":{"id":"01a205e6-82fd-773b-832c-c5768d3d2738","agent":"pair","prompt":{"role":"user","parts":[{"text":"Write it."}]},"seq":1,"resumed":0,"budget":null,"deadline":null,"keyed":false,"converses":false,"usage":{},"cost":0,"steps":0,"tool_calls":0,"calling":false,"messages_before":1,"spent_before":{"money":0,"tokens":0,"model_calls":0,"tool_calls":0,"unpriced":0},"ran":0,"since":1767225600000000,"text":null,"named_by_run":true,"pause":"asked"},"step":null,"signals":[],"taken":null,"approvals":{},"queue":[],"todos":[],"progress":{"request":{"role":"user","parts":[{"text":"Write it."}]},"said":[],"given":0,"checked":["abandoned$$discriminator",0],"started":{"iteration":2,"phase":"execute","child":"abandoned$$executor","run":"125667e9-2ad7-89eb-9bd0-476cac5eb1eb","prompt":{"role":"user","parts":[{"text":"Test it."}]}},"finished":{"iteration":2,"phase":"execute","outcome":{"status":"cancelled","text":"","usage":{},"cost":null,"steps":1},"text":""},"worked":{"iteration":1,"phase":"execute","outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"I wrote it."},"summary":"Summary one.","feedback":"Test it."},"titled":false,"gauge":{"open":null,"floor":0,"tried":false,"shrank":false,"overflows":0,"counted":0,"summarised":false},"account":{"spent":{"money":0,"tokens":0,"model_calls":0,"tool_calls":0,"unpriced":0},"open":[]}}}');
INSERT INTO events VALUES ('abandoned', 12, 1767225600000000, 'run_started', '01a205e6-82fe-71ba-aaf5-6d93299ab06e', 'pair', 1, '{"format":1,"agent":"pair","prompt":{"role":"user","parts":[{"text":"Also the docs."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned', 13, 1767225600000000, 'phase_started', '01a205e6-82fe-71ba-aaf5-6d93299ab06e', 'pair', 1, '{"iteration":2,"phase":"execute","child":"abandoned$$executor","run":"b168ccdf-b1db-851d-ae51-2dbebe56f47d","prompt":{"role":"user","parts":[{"text":"The user stopped the work and says:\n"},{"text":"Also the docs."}]}}');
INSERT INTO events VALUES ('abandoned$$discriminator', 1, 1767225600000000, 'message_added', '9d75b32c-7715-885c-a4f9-120f3c647808', 'pair/reviewer', 1, '{"message":{"role":"user","parts":[{"text":"Hello! What can I do for you?"}]}}');
INSERT INTO events VALUES ('abandoned$$discriminator', 2, 1767225600000000, 'message_added', '9d75b32c-7715-885c-a4f9-120f3c647808', 'pair/reviewer', 1, '{"message":{"role":"assistant","parts":[{"text":"Write it."}]}}');
INSERT INTO events VALUES ('abandoned$$discriminator', 3, 1767225600000000, 'run_started', '9d75b32c-7715-885c-a4f9-120f3c647808', 'pair/reviewer', 1, '{"format":1,"agent":"reviewer","prompt":{"role":"user","parts":[{"text":"Summary one."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned$$discriminator', 4, 1767225600000000, 'model_started', '9d75b32c-7715-885c-a4f9-120f3c647808', 'pair/reviewer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"9d75b32c-7715-885c-a4f9-120f3c647809","template":"entourage/discriminator@1#cd4dd40e894b"}');
INSERT INTO events VALUES ('abandoned$$discriminator', 5, 1767225600000000, 'model_finished', '9d75b32c-7715-885c-a4f9-120f3c647808', 'pair/reviewer', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Test it."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"9d75b32c-7715-885c-a4f9-120f3c647809","micros":0}');
INSERT INTO events VALUES ('abandoned$$discriminator', 6, 1767225600000000, 'run_finished', '9d75b32c-7715-885c-a4f9-120f3c647808', 'pair/reviewer', 1, '{"outcome":{"status":"completed","text":"Test it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('abandoned$$executor', 1, 1767225600000000, 'run_started', '650ef0ac-7ec3-8bd3-9fa3-6441bad84073', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Write it."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned$$executor', 2, 1767225600000000, 'model_started', '650ef0ac-7ec3-8bd3-9fa3-6441bad84073', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"650ef0ac-7ec3-8bd3-9fa3-6441bad84074"}');
INSERT INTO events VALUES ('abandoned$$executor', 3, 1767225600000000, 'model_finished', '650ef0ac-7ec3-8bd3-9fa3-6441bad84073', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"I wrote it."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"650ef0ac-7ec3-8bd3-9fa3-6441bad84074","micros":0}');
INSERT INTO events VALUES ('abandoned$$executor', 4, 1767225600000000, 'run_finished', '650ef0ac-7ec3-8bd3-9fa3-6441bad84073', 'pair/coder', 1, '{"outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('abandoned$$executor', 5, 1767225600000000, 'checkpoint', '64746b11-5d9f-848c-8ef7-bb811edcc9a3', 'pair/coder', 1, '{"state":{"history":[{"role":"user","parts":[{"text":"Write it."}]},{"role":"assistant","parts":[{"text":"I wrote it."}]}],"head":{"seq":4,"status":"idle","run":null,"agent":"coder","title":"Write it.","messages":2,"usage":{"input":10,"output":5},"cost":null,"checkpoint":0,"updated":1767225600000000},"tokens":6,"context":{"input":10,"output":5,"estimated":false},"estimated":false,"run":null,"ended":{"id":"650ef0ac-7ec3-8bd3-9fa3-6441bad84073","messages_before":1,"end":{"outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}},"step":null,"signals":[],"taken":null,"approvals":{},"queue":[],"todos":[],"titled":false,"gauge":{"open":null,"floor":0,"tried":false,"shrank":false,"overflows":0,"counted":6,"summarised":false},"account":{"spent":{"money":0,"tokens":0,"model_calls":0,"tool_calls":0,"unpriced":0},"open":[]}}}');
INSERT INTO events VALUES ('abandoned$$executor', 6, 1767225600000000, 'run_started', '64746b11-5d9f-848c-8ef7-bb811edcc9a3', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned$$executor', 7, 1767225600000000, 'model_started', '64746b11-5d9f-848c-8ef7-bb811edcc9a3', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"64746b11-5d9f-848c-8ef7-bb811edcc9a4"}');
INSERT INTO events VALUES ('abandoned$$executor', 8, 1767225600000000, 'model_finished', '64746b11-5d9f-848c-8ef7-bb811edcc9a3', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Summary one."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"64746b11-5d9f-848c-8ef7-bb811edcc9a4","micros":0}');
INSERT INTO events VALUES ('abandoned$$executor', 9, 1767225600000000, 'run_finished', '64746b11-5d9f-848c-8ef7-bb811edcc9a3', 'pair/coder', 1, '{"outcome":{"status":"completed","text":"Summary one.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('abandoned$$executor', 10, 1767225600000000, 'run_started', '125667e9-2ad7-89eb-9bd0-476cac5eb1eb', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Test it."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned$$executor', 11, 1767225600000000, 'model_started', '125667e9-2ad7-89eb-9bd0-476cac5eb1eb', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"125667e9-2ad7-89eb-9bd0-476cac5eb1ec"}');
INSERT INTO events VALUES ('abandoned$$executor', 12, 1767225600000000, 'model_finished', '125667e9-2ad7-89eb-9bd0-476cac5eb1eb', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[]},"finish":{"reason":"cancelled"},"usage":{},"request":"125667e9-2ad7-89eb-9bd0-476cac5eb1ec","micros":0,"error":{"kind":"cancelled","retry":"permanent","message":"the call or run was cancelled"}}');
INSERT INTO events VALUES ('abandoned$$executor', 13, 1767225600000000, 'run_finished', '125667e9-2ad7-89eb-9bd0-476cac5eb1eb', 'pair/coder', 1, '{"outcome":{"status":"cancelled","text":"","usage":{},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('abandoned$$executor', 14, 1767225600000000, 'run_started', 'b168ccdf-b1db-851d-ae51-2dbebe56f47d', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"The user stopped the work and says:\n"},{"text":"Also the docs."}]},"named_by_run":true}');
INSERT INTO events VALUES ('abandoned$$executor', 15, 1767225600000000, 'model_started', 'b168ccdf-b1db-851d-ae51-2dbebe56f47d', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"b168ccdf-b1db-851d-ae51-2dbebe56f47e"}');
INSERT INTO events VALUES ('checked', 1, 1767225600000000, 'run_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"format":1,"agent":"pair","prompt":{"role":"user","parts":[{"text":"Write it."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked', 2, 1767225600000000, 'phase_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":1,"phase":"execute","child":"checked$$executor","run":"6a2e7f7e-00e2-8454-8d5d-c48583a6ef0c","prompt":{"role":"user","parts":[{"text":"Write it."}]}}');
INSERT INTO events VALUES ('checked', 3, 1767225600000000, 'phase_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":1,"phase":"execute","outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"I wrote it."}');
INSERT INTO events VALUES ('checked', 4, 1767225600000000, 'phase_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":1,"phase":"summarize","child":"checked$$executor","run":"14110cf2-cc43-8aa1-8e95-a8f3a6c39a05","prompt":{"role":"user","parts":[{"text":"Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain."}]}}');
INSERT INTO events VALUES ('checked', 5, 1767225600000000, 'phase_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":1,"phase":"summarize","outcome":{"status":"completed","text":"Summary one.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"Summary one."}');
INSERT INTO events VALUES ('checked', 6, 1767225600000000, 'phase_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":1,"phase":"check","child":"checked$$discriminator","run":"c6e1a992-80eb-82fb-bbb4-9dfec4638ca8","prompt":{"role":"user","parts":[{"text":"Summary one."}]}}');
INSERT INTO events VALUES ('checked', 7, 1767225600000000, 'phase_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":1,"phase":"check","outcome":{"status":"completed","text":"Test it.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"Test it.","verdict":{"accepted":false,"reason":"Test it."}}');
INSERT INTO events VALUES ('checked', 8, 1767225600000000, 'phase_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":2,"phase":"execute","child":"checked$$executor","run":"6c61ac9f-20d2-8367-a3f9-4571b6c4948d","prompt":{"role":"user","parts":[{"text":"Test it."}]}}');
INSERT INTO events VALUES ('checked', 9, 1767225600000000, 'phase_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":2,"phase":"execute","outcome":{"status":"completed","text":"I tested it.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"I tested it."}');
INSERT INTO events VALUES ('checked', 10, 1767225600000000, 'phase_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":2,"phase":"summarize","child":"checked$$executor","run":"8c631101-a0c1-8a61-876a-468eff88cf20","prompt":{"role":"user","parts":[{"text":"Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain."}]}}');
INSERT INTO events VALUES ('checked', 11, 1767225600000000, 'phase_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":2,"phase":"summarize","outcome":{"status":"completed","text":"Summary two.","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"Summary two."}');
INSERT INTO events VALUES ('checked', 12, 1767225600000000, 'phase_started', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":2,"phase":"check","child":"checked$$discriminator","run":"642c811b-fc8a-8c67-8334-516e89e4dc33","prompt":{"role":"user","parts":[{"text":"Summary two."}]}}');
INSERT INTO events VALUES ('checked', 13, 1767225600000000, 'phase_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"iteration":2,"phase":"check","outcome":{"status":"completed","text":"","usage":{"input":10,"output":5},"cost":null,"steps":1},"text":"It is tested.","verdict":{"accepted":true,"reason":"It is tested."}}');
INSERT INTO events VALUES ('checked', 14, 1767225600000000, 'run_finished', '01a205e6-82fb-7247-a48d-8408f7a382c1', 'pair', 1, '{"outcome":{"status":"completed","text":"Summary two.","usage":{},"cost":0,"steps":0}}');
INSERT INTO events VALUES ('checked$$discriminator', 1, 1767225600000000, 'message_added', 'c6e1a992-80eb-82fb-bbb4-9dfec4638ca8', 'pair/reviewer', 1, '{"message":{"role":"user","parts":[{"text":"Hello! What can I do for you?"}]}}');
INSERT INTO events VALUES ('checked$$discriminator', 2, 1767225600000000, 'message_added', 'c6e1a992-80eb-82fb-bbb4-9dfec4638ca8', 'pair/reviewer', 1, '{"message":{"role":"assistant","parts":[{"text":"Write it."}]}}');
INSERT INTO events VALUES ('checked$$discriminator', 3, 1767225600000000, 'run_started', 'c6e1a992-80eb-82fb-bbb4-9dfec4638ca8', 'pair/reviewer', 1, '{"format":1,"agent":"reviewer","prompt":{"role":"user","parts":[{"text":"Summary one."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked$$discriminator', 4, 1767225600000000, 'model_started', 'c6e1a992-80eb-82fb-bbb4-9dfec4638ca8', 'pair/reviewer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"c6e1a992-80eb-82fb-bbb4-9dfec4638ca9","template":"entourage/discriminator@1#cd4dd40e894b"}');
INSERT INTO events VALUES ('checked$$discriminator', 5, 1767225600000000, 'model_finished', 'c6e1a992-80eb-82fb-bbb4-9dfec4638ca8', 'pair/reviewer', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Test it."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"c6e1a992-80eb-82fb-bbb4-9dfec4638ca9","micros":0}');
INSERT INTO events VALUES ('checked$$discriminator', 6, 1767225600000000, 'run_finished', 'c6e1a992-80eb-82fb-bbb4-9dfec4638ca8', 'pair/reviewer', 1, '{"outcome":{"status":"completed","text":"Test it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('checked$$discriminator', 7, 1767225600000000, 'run_started', '642c811b-fc8a-8c67-8334-516e89e4dc33', 'pair/reviewer', 1, '{"format":1,"agent":"reviewer","prompt":{"role":"user","parts":[{"text":"Summary two."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked$$discriminator', 8, 1767225600000000, 'model_started', '642c811b-fc8a-8c67-8334-516e89e4dc33', 'pair/reviewer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"642c811b-fc8a-8c67-8334-516e89e4dc34","template":"entourage/discriminator@1#cd4dd40e894b"}');
INSERT INTO events VALUES ('checked$$discriminator', 9, 1767225600000000, 'model_finished', '642c811b-fc8a-8c67-8334-516e89e4dc33', 'pair/reviewer', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"task_complete","arguments":{"summary":"It is tested."}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":10,"output":5},"request":"642c811b-fc8a-8c67-8334-516e89e4dc34","micros":0}');
INSERT INTO events VALUES ('checked$$discriminator', 10, 1767225600000000, 'tool_started', '642c811b-fc8a-8c67-8334-516e89e4dc33', 'pair/reviewer', 1, '{"index":0,"call":"call_0","tool":"task_complete","repeat":"idempotent","allowed_by":"otherwise"}');
INSERT INTO events VALUES ('checked$$discriminator', 11, 1767225600000000, 'tool_finished', '642c811b-fc8a-8c67-8334-516e89e4dc33', 'pair/reviewer', 1, '{"index":0,"result":{"call":"call_0","name":"task_complete","content":[{"text":"The task is complete."}]},"stop_turn":true,"micros":0}');
INSERT INTO events VALUES ('checked$$discriminator', 12, 1767225600000000, 'run_finished', '642c811b-fc8a-8c67-8334-516e89e4dc33', 'pair/reviewer', 1, '{"outcome":{"status":"completed","text":"","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('checked$$executor', 1, 1767225600000000, 'run_started', '6a2e7f7e-00e2-8454-8d5d-c48583a6ef0c', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Write it."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked$$executor', 2, 1767225600000000, 'model_started', '6a2e7f7e-00e2-8454-8d5d-c48583a6ef0c', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"6a2e7f7e-00e2-8454-8d5d-c48583a6ef0d"}');
INSERT INTO events VALUES ('checked$$executor', 3, 1767225600000000, 'model_finished', '6a2e7f7e-00e2-8454-8d5d-c48583a6ef0c', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"I wrote it."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"6a2e7f7e-00e2-8454-8d5d-c48583a6ef0d","micros":0}');
INSERT INTO events VALUES ('checked$$executor', 4, 1767225600000000, 'run_finished', '6a2e7f7e-00e2-8454-8d5d-c48583a6ef0c', 'pair/coder', 1, '{"outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('checked$$executor', 5, 1767225600000000, 'checkpoint', '14110cf2-cc43-8aa1-8e95-a8f3a6c39a05', 'pair/coder', 1, '{"state":{"history":[{"role":"user","parts":[{"text":"Write it."}]},{"role":"assistant","parts":[{"text":"I wrote it."}]}],"head":{"seq":4,"status":"idle","run":null,"agent":"coder","title":"Write it.","messages":2,"usage":{"input":10,"output":5},"cost":null,"checkpoint":0,"updated":1767225600000000},"tokens":6,"context":{"input":10,"output":5,"estimated":false},"estimated":false,"run":null,"ended":{"id":"6a2e7f7e-00e2-8454-8d5d-c48583a6ef0c","messages_before":1,"end":{"outcome":{"status":"completed","text":"I wrote it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}},"step":null,"signals":[],"taken":null,"approvals":{},"queue":[],"todos":[],"titled":false,"gauge":{"open":null,"floor":0,"tried":false,"shrank":false,"overflows":0,"counted":6,"summarised":false},"account":{"spent":{"money":0,"tokens":0,"model_calls":0,"tool_calls":0,"unpriced":0},"open":[]}}}');
INSERT INTO events VALUES ('checked$$executor', 6, 1767225600000000, 'run_started', '14110cf2-cc43-8aa1-8e95-a8f3a6c39a05', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked$$executor', 7, 1767225600000000, 'model_started', '14110cf2-cc43-8aa1-8e95-a8f3a6c39a05', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"14110cf2-cc43-8aa1-8e95-a8f3a6c39a06"}');
INSERT INTO events VALUES ('checked$$executor', 8, 1767225600000000, 'model_finished', '14110cf2-cc43-8aa1-8e95-a8f3a6c39a05', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Summary one."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"14110cf2-cc43-8aa1-8e95-a8f3a6c39a06","micros":0}');
INSERT INTO events VALUES ('checked$$executor', 9, 1767225600000000, 'run_finished', '14110cf2-cc43-8aa1-8e95-a8f3a6c39a05', 'pair/coder', 1, '{"outcome":{"status":"completed","text":"Summary one.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('checked$$executor', 10, 1767225600000000, 'run_started', '6c61ac9f-20d2-8367-a3f9-4571b6c4948d', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Test it."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked$$executor', 11, 1767225600000000, 'model_started', '6c61ac9f-20d2-8367-a3f9-4571b6c4948d', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"6c61ac9f-20d2-8367-a3f9-4571b6c4948e"}');
INSERT INTO events VALUES ('checked$$executor', 12, 1767225600000000, 'model_finished', '6c61ac9f-20d2-8367-a3f9-4571b6c4948d', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"I tested it."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"6c61ac9f-20d2-8367-a3f9-4571b6c4948e","micros":0}');
INSERT INTO events VALUES ('checked$$executor', 13, 1767225600000000, 'run_finished', '6c61ac9f-20d2-8367-a3f9-4571b6c4948d', 'pair/coder', 1, '{"outcome":{"status":"completed","text":"I tested it.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('checked$$executor', 14, 1767225600000000, 'run_started', '8c631101-a0c1-8a61-876a-468eff88cf20', 'pair/coder', 1, '{"format":1,"agent":"coder","prompt":{"role":"user","parts":[{"text":"Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain."}]},"named_by_run":true}');
INSERT INTO events VALUES ('checked$$executor', 15, 1767225600000000, 'model_started', '8c631101-a0c1-8a61-876a-468eff88cf20', 'pair/coder', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"8c631101-a0c1-8a61-876a-468eff88cf21"}');
INSERT INTO events VALUES ('checked$$executor', 16, 1767225600000000, 'model_finished', '8c631101-a0c1-8a61-876a-468eff88cf20', 'pair/coder', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Summary two."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"8c631101-a0c1-8a61-876a-468eff88cf21","micros":0}');
INSERT INTO events VALUES ('checked$$executor', 17, 1767225600000000, 'run_finished', '8c631101-a0c1-8a61-876a-468eff88cf20', 'pair/coder', 1, '{"outcome":{"status":"completed","text":"Summary two.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('killed', 1, 1767225600000000, 'run_started', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"format":1,"agent":"plan","prompt":{"role":"user","parts":[{"text":"It is spring."}]},"named_by_run":true}');
INSERT INTO events VALUES ('killed', 2, 1767225600000000, 'graph_started', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"signature":{"nodes":[{"id":"sides","after":[]},{"id":"looks","after":[{"from":"sides"}],"agent":"scout"},{"id":"report","after":[{"from":"looks"}],"agent":"writer"},{"id":"picture","after":[{"from":"looks"}],"agent":"artist"},{"id":"sign","after":[{"from":"report"},{"from":"picture"}],"agent":"head"}]}}');
INSERT INTO events VALUES ('killed', 3, 1767225600000000, 'node_started', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"sides","attempt":1}');
INSERT INTO events VALUES ('killed', 4, 1767225600000000, 'node_finished', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"sides","attempt":1,"end":{"completed":["left","right"]},"cost":0,"micros":0}');
INSERT INTO events VALUES ('killed', 5, 1767225600000000, 'node_started', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"looks","attempt":1}');
INSERT INTO events VALUES ('killed', 6, 1767225600000000, 'node_started', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"looks[0]","attempt":1,"agent":"scout","child":"killed.6$$0"}');
INSERT INTO events VALUES ('killed', 7, 1767225600000000, 'node_finished', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"looks[0]","attempt":1,"end":{"completed":"Looked."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('killed', 8, 1767225600000000, 'node_started', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"looks[1]","attempt":1,"agent":"scout","child":"killed.8$$0"}');
INSERT INTO events VALUES ('killed', 9, 1767225600000000, 'graph_changed', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"change":{"skip":{"node":"picture","dependents":"satisfied"}}}');
INSERT INTO events VALUES ('killed', 10, 1767225600000000, 'node_finished', '01a205e6-8304-75f6-b08a-6fa9c2bfbd32', 'plan', 1, '{"node":"picture","attempt":0,"end":{"skipped":"asked"},"cost":0,"micros":0}');
INSERT INTO events VALUES ('killed.6$$0', 1, 1767225600000000, 'run_started', '01a205e6-8304-75f6-b08a-6faa9f1942d5', 'plan/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Look left."}]},"named_by_run":true}');
INSERT INTO events VALUES ('killed.6$$0', 2, 1767225600000000, 'model_started', '01a205e6-8304-75f6-b08a-6faa9f1942d5', 'plan/scout', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8304-75f6-b08a-6faa9f1942d6"}');
INSERT INTO events VALUES ('killed.6$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8304-75f6-b08a-6faa9f1942d5', 'plan/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Looked."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8304-75f6-b08a-6faa9f1942d6","micros":0}');
INSERT INTO events VALUES ('killed.6$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8304-75f6-b08a-6faa9f1942d5', 'plan/scout', 1, '{"outcome":{"status":"completed","text":"Looked.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('killed.8$$0', 1, 1767225600000000, 'run_started', '01a205e6-8304-75f6-b08a-6fab6bb3a4ea', 'plan/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Look right."}]},"named_by_run":true}');
INSERT INTO events VALUES ('killed.8$$0', 2, 1767225600000000, 'model_started', '01a205e6-8304-75f6-b08a-6fab6bb3a4ea', 'plan/scout', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8304-75f6-b08a-6fab6bb3a4eb"}');
INSERT INTO events VALUES ('paused', 1, 1767225600000000, 'run_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"format":1,"agent":"plan","prompt":{"role":"user","parts":[{"text":"It is spring."}]},"named_by_run":true}');
INSERT INTO events VALUES ('paused', 2, 1767225600000000, 'graph_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"signature":{"nodes":[{"id":"sides","after":[]},{"id":"looks","after":[{"from":"sides"}],"agent":"scout"},{"id":"report","after":[{"from":"looks"}],"agent":"writer"},{"id":"picture","after":[{"from":"looks"}],"agent":"artist"},{"id":"sign","after":[{"from":"report"},{"from":"picture"}],"agent":"head"}]}}');
INSERT INTO events VALUES ('paused', 3, 1767225600000000, 'node_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"sides","attempt":1}');
INSERT INTO events VALUES ('paused', 4, 1767225600000000, 'node_finished', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"sides","attempt":1,"end":{"completed":["left","right"]},"cost":0,"micros":0}');
INSERT INTO events VALUES ('paused', 5, 1767225600000000, 'node_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"looks","attempt":1}');
INSERT INTO events VALUES ('paused', 6, 1767225600000000, 'node_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"looks[0]","attempt":1,"agent":"scout","child":"paused.6$$0"}');
INSERT INTO events VALUES ('paused', 7, 1767225600000000, 'node_finished', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"looks[0]","attempt":1,"end":{"completed":"Looked."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('paused', 8, 1767225600000000, 'node_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"looks[1]","attempt":1,"agent":"scout","child":"paused.8$$0"}');
INSERT INTO events VALUES ('paused', 9, 1767225600000000, 'node_finished', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"looks[1]","attempt":1,"end":{"completed":"Looked."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('paused', 10, 1767225600000000, 'node_finished', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"looks","attempt":1,"end":{"completed":["Looked.","Looked."]},"cost":0,"micros":0}');
INSERT INTO events VALUES ('paused', 11, 1767225600000000, 'node_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"report","attempt":1,"agent":"writer","child":"paused.11$$0"}');
INSERT INTO events VALUES ('paused', 12, 1767225600000000, 'node_finished', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"report","attempt":1,"end":{"failed":{"kind":"overloaded","retry":"temporary","message":"no room","context":"model.stream"}},"cost":0,"micros":0,"retry_at":1767225600000000}');
INSERT INTO events VALUES ('paused', 13, 1767225600000000, 'node_started', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"report","attempt":2,"agent":"writer","child":"paused.13$$0"}');
INSERT INTO events VALUES ('paused', 14, 1767225600000000, 'node_finished', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"node":"report","attempt":2,"end":{"completed":"All is well."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('paused', 15, 1767225600000000, 'run_paused', '01a205e6-8302-7506-933b-dc8357fc1dff', 'plan', 1, '{"pause":"asked"}');
INSERT INTO events VALUES ('paused.11$$0', 1, 1767225600000000, 'run_started', '01a205e6-8303-7490-9f2d-02e961d58119', 'plan/writer', 1, '{"format":1,"agent":"writer","prompt":{"role":"user","parts":[{"text":"Report.\n\n<result of=\"looks\">\n[\"Looked.\",\"Looked.\"]\n</result>"}]},"named_by_run":true}');
INSERT INTO events VALUES ('paused.11$$0', 2, 1767225600000000, 'model_started', '01a205e6-8303-7490-9f2d-02e961d58119', 'plan/writer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8303-7490-9f2d-02e961d5811a"}');
INSERT INTO events VALUES ('paused.11$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8303-7490-9f2d-02e961d58119', 'plan/writer', 1, '{"step":1,"message":{"role":"assistant","parts":[]},"finish":{"reason":"error"},"usage":{},"cost":0,"request":"01a205e6-8303-7490-9f2d-02e961d5811a","micros":0,"error":{"kind":"overloaded","retry":"temporary","message":"no room","context":"model.stream"}}');
INSERT INTO events VALUES ('paused.11$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8303-7490-9f2d-02e961d58119', 'plan/writer', 1, '{"outcome":{"status":{"failed":{"kind":"overloaded","retry":"temporary","message":"no room","context":"model.stream"}},"text":"","usage":{},"cost":0,"steps":1}}');
INSERT INTO events VALUES ('paused.13$$0', 1, 1767225600000000, 'run_started', '01a205e6-8303-7490-9f2d-02eadddc6ea9', 'plan/writer', 1, '{"format":1,"agent":"writer","prompt":{"role":"user","parts":[{"text":"Report.\n\n<result of=\"looks\">\n[\"Looked.\",\"Looked.\"]\n</result>"}]},"named_by_run":true}');
INSERT INTO events VALUES ('paused.13$$0', 2, 1767225600000000, 'model_started', '01a205e6-8303-7490-9f2d-02eadddc6ea9', 'plan/writer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8303-7490-9f2d-02eadddc6eaa"}');
INSERT INTO events VALUES ('paused.13$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8303-7490-9f2d-02eadddc6ea9', 'plan/writer', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"All is well."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8303-7490-9f2d-02eadddc6eaa","micros":0}');
INSERT INTO events VALUES ('paused.13$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8303-7490-9f2d-02eadddc6ea9', 'plan/writer', 1, '{"outcome":{"status":"completed","text":"All is well.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('paused.6$$0', 1, 1767225600000000, 'run_started', '01a205e6-8302-7506-933b-dc84ab55a611', 'plan/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Look left."}]},"named_by_run":true}');
INSERT INTO events VALUES ('paused.6$$0', 2, 1767225600000000, 'model_started', '01a205e6-8302-7506-933b-dc84ab55a611', 'plan/scout', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8302-7506-933b-dc84ab55a612"}');
INSERT INTO events VALUES ('paused.6$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8302-7506-933b-dc84ab55a611', 'plan/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Looked."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8302-7506-933b-dc84ab55a612","micros":0}');
INSERT INTO events VALUES ('paused.6$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8302-7506-933b-dc84ab55a611', 'plan/scout', 1, '{"outcome":{"status":"completed","text":"Looked.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('paused.8$$0', 1, 1767225600000000, 'run_started', '01a205e6-8302-7506-933b-dc85670ff7e1', 'plan/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Look right."}]},"named_by_run":true}');
INSERT INTO events VALUES ('paused.8$$0', 2, 1767225600000000, 'model_started', '01a205e6-8302-7506-933b-dc85670ff7e1', 'plan/scout', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8302-7506-933b-dc85670ff7e2"}');
INSERT INTO events VALUES ('paused.8$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8302-7506-933b-dc85670ff7e1', 'plan/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Looked."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8302-7506-933b-dc85670ff7e2","micros":0}');
INSERT INTO events VALUES ('paused.8$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8302-7506-933b-dc85670ff7e1', 'plan/scout', 1, '{"outcome":{"status":"completed","text":"Looked.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('planned', 1, 1767225600000000, 'run_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"format":1,"agent":"plan","prompt":{"role":"user","parts":[{"text":"It is spring."}]},"named_by_run":true}');
INSERT INTO events VALUES ('planned', 2, 1767225600000000, 'graph_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"signature":{"nodes":[{"id":"sides","after":[]},{"id":"looks","after":[{"from":"sides"}],"agent":"scout"},{"id":"report","after":[{"from":"looks"}],"agent":"writer"},{"id":"picture","after":[{"from":"looks"}],"agent":"artist"},{"id":"sign","after":[{"from":"report"},{"from":"picture"}],"agent":"head"}]}}');
INSERT INTO events VALUES ('planned', 3, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"sides","attempt":1}');
INSERT INTO events VALUES ('planned', 4, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"sides","attempt":1,"end":{"completed":["left","right"]},"cost":0,"micros":0}');
INSERT INTO events VALUES ('planned', 5, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"looks","attempt":1}');
INSERT INTO events VALUES ('planned', 6, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"looks[0]","attempt":1,"agent":"scout","child":"planned.6$$0"}');
INSERT INTO events VALUES ('planned', 7, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"looks[0]","attempt":1,"end":{"completed":"Looked."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('planned', 8, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"looks[1]","attempt":1,"agent":"scout","child":"planned.8$$0"}');
INSERT INTO events VALUES ('planned', 9, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"looks[1]","attempt":1,"end":{"completed":"Looked."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('planned', 10, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"looks","attempt":1,"end":{"completed":["Looked.","Looked."]},"cost":0,"micros":0}');
INSERT INTO events VALUES ('planned', 11, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"report","attempt":1,"agent":"writer","child":"planned.11$$0"}');
INSERT INTO events VALUES ('planned', 12, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"report","attempt":1,"end":{"completed":"All is well."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('planned', 13, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"picture","attempt":1,"agent":"artist","child":"planned.13$$0"}');
INSERT INTO events VALUES ('planned', 14, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"picture","attempt":1,"end":{"completed":"Drawn."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('planned', 15, 1767225600000000, 'node_started', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"sign","attempt":1,"agent":"head","child":"planned.15$$0"}');
INSERT INTO events VALUES ('planned', 16, 1767225600000000, 'node_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"node":"sign","attempt":1,"end":{"completed":"Signed."},"usage":{"input":10,"output":5},"micros":0}');
INSERT INTO events VALUES ('planned', 17, 1767225600000000, 'run_finished', '01a205e6-82ff-746d-938f-43836a731bb8', 'plan', 1, '{"outcome":{"status":"completed","text":"Signed.","usage":{},"cost":0,"steps":0}}');
INSERT INTO events VALUES ('planned.11$$0', 1, 1767225600000000, 'run_started', '01a205e6-8300-70e7-9991-498a5bc4ba92', 'plan/writer', 1, '{"format":1,"agent":"writer","prompt":{"role":"user","parts":[{"text":"Report.\n\n<result of=\"looks\">\n[\"Looked.\",\"Looked.\"]\n</result>"}]},"named_by_run":true}');
INSERT INTO events VALUES ('planned.11$$0', 2, 1767225600000000, 'model_started', '01a205e6-8300-70e7-9991-498a5bc4ba92', 'plan/writer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8300-70e7-9991-498a5bc4ba93"}');
INSERT INTO events VALUES ('planned.11$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8300-70e7-9991-498a5bc4ba92', 'plan/writer', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"All is well."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8300-70e7-9991-498a5bc4ba93","micros":0}');
INSERT INTO events VALUES ('planned.11$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8300-70e7-9991-498a5bc4ba92', 'plan/writer', 1, '{"outcome":{"status":"completed","text":"All is well.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('planned.13$$0', 1, 1767225600000000, 'run_started', '01a205e6-8300-70e7-9991-498b2804b34c', 'plan/artist', 1, '{"format":1,"agent":"artist","prompt":{"role":"user","parts":[{"text":"Draw it.\n\n<result of=\"looks\">\n[\"Looked.\",\"Looked.\"]\n</result>"}]},"named_by_run":true}');
INSERT INTO events VALUES ('planned.13$$0', 2, 1767225600000000, 'model_started', '01a205e6-8300-70e7-9991-498b2804b34c', 'plan/artist', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8300-70e7-9991-498b2804b34d"}');
INSERT INTO events VALUES ('planned.13$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8300-70e7-9991-498b2804b34c', 'plan/artist', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Drawn."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8300-70e7-9991-498b2804b34d","micros":0}');
INSERT INTO events VALUES ('planned.13$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8300-70e7-9991-498b2804b34c', 'plan/artist', 1, '{"outcome":{"status":"completed","text":"Drawn.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('planned.15$$0', 1, 1767225600000000, 'run_started', '01a205e6-8300-70e7-9991-498c8f8964dd', 'plan/head', 1, '{"format":1,"agent":"head","prompt":{"role":"user","parts":[{"text":"Sign it.\n\n<result of=\"report\">\nAll is well.\n</result>\n\n<result of=\"picture\">\nDrawn.\n</result>"}]},"named_by_run":true}');
INSERT INTO events VALUES ('planned.15$$0', 2, 1767225600000000, 'model_started', '01a205e6-8300-70e7-9991-498c8f8964dd', 'plan/head', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8300-70e7-9991-498c8f8964de"}');
INSERT INTO events VALUES ('planned.15$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8300-70e7-9991-498c8f8964dd', 'plan/head', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Signed."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-8300-70e7-9991-498c8f8964de","micros":0}');
INSERT INTO events VALUES ('planned.15$$0', 4, 1767225600000000, 'run_finished', '01a205e6-8300-70e7-9991-498c8f8964dd', 'plan/head', 1, '{"outcome":{"status":"completed","text":"Signed.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('planned.6$$0', 1, 1767225600000000, 'run_started', '01a205e6-82ff-746d-938f-43845df57adb', 'plan/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Look left."}]},"named_by_run":true}');
INSERT INTO events VALUES ('planned.6$$0', 2, 1767225600000000, 'model_started', '01a205e6-82ff-746d-938f-43845df57adb', 'plan/scout', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-82ff-746d-938f-43845df57adc"}');
INSERT INTO events VALUES ('planned.6$$0', 3, 1767225600000000, 'model_finished', '01a205e6-82ff-746d-938f-43845df57adb', 'plan/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Looked."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-82ff-746d-938f-43845df57adc","micros":0}');
INSERT INTO events VALUES ('planned.6$$0', 4, 1767225600000000, 'run_finished', '01a205e6-82ff-746d-938f-43845df57adb', 'plan/scout', 1, '{"outcome":{"status":"completed","text":"Looked.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('planned.8$$0', 1, 1767225600000000, 'run_started', '01a205e6-82ff-746d-938f-4385939724e3', 'plan/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Look right."}]},"named_by_run":true}');
INSERT INTO events VALUES ('planned.8$$0', 2, 1767225600000000, 'model_started', '01a205e6-82ff-746d-938f-4385939724e3', 'plan/scout', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-82ff-746d-938f-4385939724e4"}');
INSERT INTO events VALUES ('planned.8$$0', 3, 1767225600000000, 'model_finished', '01a205e6-82ff-746d-938f-4385939724e3', 'plan/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"Looked."}]},"finish":{"reason":"stop"},"usage":{"input":10,"output":5},"request":"01a205e6-82ff-746d-938f-4385939724e4","micros":0}');
INSERT INTO events VALUES ('planned.8$$0', 4, 1767225600000000, 'run_finished', '01a205e6-82ff-746d-938f-4385939724e3', 'plan/scout', 1, '{"outcome":{"status":"completed","text":"Looked.","usage":{"input":10,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('shop', 1, 1767225600000000, 'run_started', '01a205e6-8301-7781-af84-8c8fc83b41ce', 'shop', 1, '{"format":1,"agent":"shop","prompt":{"role":"user","parts":[{"text":"It is evening."}]},"named_by_run":true}');
INSERT INTO events VALUES ('shop', 2, 1767225600000000, 'graph_started', '01a205e6-8301-7781-af84-8c8fc83b41ce', 'shop', 1, '{"signature":{"nodes":[{"id":"buy","after":[],"agent":"buyer"},{"id":"close","after":[{"from":"buy"}],"agent":"keeper"}]}}');
INSERT INTO events VALUES ('shop', 3, 1767225600000000, 'node_started', '01a205e6-8301-7781-af84-8c8fc83b41ce', 'shop', 1, '{"node":"buy","attempt":1,"agent":"buyer","child":"shop.3$$0"}');
INSERT INTO events VALUES ('shop', 4, 1767225600000000, 'run_paused', '01a205e6-8301-7781-af84-8c8fc83b41ce', 'shop', 1, '{"pause":{"approval":"shop.3$$0.3$$0.3$$0-1ccdba5c2e7ac37f"}}');
INSERT INTO events VALUES ('shop.3$$0', 1, 1767225600000000, 'run_started', '01a205e6-8301-7781-af84-8c90ea221dd7', 'shop/buyer', 1, '{"format":1,"agent":"buyer","prompt":{"role":"user","parts":[{"text":"Buy a pear.\n\n<task>\nIt is evening.\n</task>"}]},"named_by_run":true}');
INSERT INTO events VALUES ('shop.3$$0', 2, 1767225600000000, 'model_started', '01a205e6-8301-7781-af84-8c90ea221dd7', 'shop/buyer', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8301-7781-af84-8c90ea221dd8"}');
INSERT INTO events VALUES ('shop.3$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8301-7781-af84-8c90ea221dd7', 'shop/buyer', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"agent","arguments":{"prompt":"Pay."}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":10,"output":5},"request":"01a205e6-8301-7781-af84-8c90ea221dd8","micros":0}');
INSERT INTO events VALUES ('shop.3$$0', 4, 1767225600000000, 'tool_started', '01a205e6-8301-7781-af84-8c90ea221dd7', 'shop/buyer', 1, '{"index":0,"call":"call_0","tool":"agent","repeat":"resume","allowed_by":"otherwise"}');
INSERT INTO events VALUES ('shop.3$$0', 5, 1767225600000000, 'run_paused', '01a205e6-8301-7781-af84-8c90ea221dd7', 'shop/buyer', 1, '{"pause":{"approval":"shop.3$$0.3$$0.3$$0-1ccdba5c2e7ac37f"}}');
INSERT INTO events VALUES ('shop.3$$0.3$$0', 1, 1767225600000000, 'run_started', '01a205e6-8301-7781-af84-8c9121fb167f', 'shop/buyer/cashier', 1, '{"format":1,"agent":"cashier","prompt":{"role":"user","parts":[{"text":"Pay."}]},"title":"Sub-agent cashier","named_by_run":true}');
INSERT INTO events VALUES ('shop.3$$0.3$$0', 2, 1767225600000000, 'model_started', '01a205e6-8301-7781-af84-8c9121fb167f', 'shop/buyer/cashier', 1, '{"step":1,"provider":"scripted","model":"scripted","request":"01a205e6-8301-7781-af84-8c9121fb1680"}');
INSERT INTO events VALUES ('shop.3$$0.3$$0', 3, 1767225600000000, 'model_finished', '01a205e6-8301-7781-af84-8c9121fb167f', 'shop/buyer/cashier', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"pay","arguments":{"sum":3}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":10,"output":5},"request":"01a205e6-8301-7781-af84-8c9121fb1680","micros":0}');
INSERT INTO events VALUES ('shop.3$$0.3$$0', 4, 1767225600000000, 'approval_requested', '01a205e6-8301-7781-af84-8c9121fb167f', 'shop/buyer/cashier', 1, '{"id":"shop.3$$0.3$$0.3$$0-1ccdba5c2e7ac37f","session":"shop.3$$0.3$$0","run":"01a205e6-8301-7781-af84-8c9121fb167f","agent":"shop/buyer/cashier","tool":"pay","arguments":{"sum":3},"footprint":{"access":"write"},"rule":"ask pay","digest":"c73318f2f9e07cf7b858d99ead881387"}');
INSERT INTO events VALUES ('shop.3$$0.3$$0', 5, 1767225600000000, 'run_paused', '01a205e6-8301-7781-af84-8c9121fb167f', 'shop/buyer/cashier', 1, '{"pause":{"approval":"shop.3$$0.3$$0.3$$0-1ccdba5c2e7ac37f"}}');
CREATE INDEX sessions_by_update ON sessions (updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (parent, updated DESC, id);
CREATE INDEX events_by_kind ON events (kind, session, seq);
CREATE VIEW clock AS
SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) AS now;
CREATE VIEW model_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.json_body,
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq
              AND started.kind = 'model_started' AND started.run = finished.run
              AND json_extract(started.json_body, '$.request') IS json_extract(finished.json_body, '$.request')
            ORDER BY started.seq DESC LIMIT 1) AS started
    FROM events AS finished
    WHERE finished.kind = 'model_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL, begun.seq
    FROM events AS begun
    WHERE begun.kind = 'model_started'
      -- No end came before the next run's begin. (NOT EXISTS would let planners join all with all.)
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind IN ('model_started', 'model_finished') AND later.run = begun.run
                           AND json_extract(later.json_body, '$.request') IS json_extract(begun.json_body, '$.request'))
                    ORDER BY later.seq LIMIT 1), 'run_started') = 'run_started'
)
SELECT calls.session, calls.run, calls.agent, calls.seq,
       coalesce(json_extract(calls.json_body, '$.step'), json_extract(started.json_body, '$.step')) AS step,
       coalesce((SELECT json_extract(restart.json_body, '$.restart.provider') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.json_body, '$.request') IS json_extract(calls.json_body, '$.request')
                   AND json_extract(restart.json_body, '$.restart.provider') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.json_body, '$.provider')) AS provider,
       coalesce((SELECT json_extract(restart.json_body, '$.restart.model') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.json_body, '$.request') IS json_extract(calls.json_body, '$.request')
                   AND json_extract(restart.json_body, '$.restart.model') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.json_body, '$.model')) AS model,
       json_extract(calls.json_body, '$.model') AS reported_model,
       CASE WHEN calls.finished_at IS NOT NULL THEN coalesce(json_extract(calls.json_body, '$.attempt'), 1) END AS attempts,
       started.at AS started_at, calls.finished_at, json_extract(calls.json_body, '$.micros') AS micros,
       json_extract(calls.json_body, '$.finish.reason') AS finish,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.input') END
                    + CASE json_type(calls.json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.input') END,
                    CASE json_type(calls.json_body, '$.usage.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.input') END,
                    CASE json_type(calls.json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.input') END),
           9223372036854775807) AS input_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.output') END
                    + CASE json_type(calls.json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.output') END,
                    CASE json_type(calls.json_body, '$.usage.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.output') END,
                    CASE json_type(calls.json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.output') END),
           9223372036854775807) AS output_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_read') END
                    + CASE json_type(calls.json_body, '$.wasted.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_read') END,
                    CASE json_type(calls.json_body, '$.usage.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_read') END,
                    CASE json_type(calls.json_body, '$.wasted.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_read') END),
           9223372036854775807) AS cache_read_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_write') END
                    + CASE json_type(calls.json_body, '$.wasted.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_write') END,
                    CASE json_type(calls.json_body, '$.usage.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_write') END,
                    CASE json_type(calls.json_body, '$.wasted.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_write') END),
           9223372036854775807) AS cache_write_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.reasoning') END
                    + CASE json_type(calls.json_body, '$.wasted.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.reasoning') END,
                    CASE json_type(calls.json_body, '$.usage.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.reasoning') END,
                    CASE json_type(calls.json_body, '$.wasted.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.reasoning') END),
           9223372036854775807) AS reasoning_tokens,
       min(CASE json_type(calls.json_body, '$.cost') WHEN 'integer' THEN json_extract(calls.json_body, '$.cost') END, 9223372036854775807) AS cost_pico,
       json_extract(calls.json_body, '$.error.kind') AS error,
       json_extract(calls.json_body, '$.error.message') AS error_message
FROM calls
LEFT JOIN events AS started ON started.session = calls.session AND started.seq = calls.started;
CREATE VIEW tool_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.json_body,
           json_extract(finished.json_body, '$.index') AS place, json_extract(finished.json_body, '$.result.call') AS call,
           json_extract(finished.json_body, '$.result.name') AS tool,
           -- What came last before the result: the claim of this call, or the reply that asked for it.
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq AND started.run = finished.run
              AND (started.kind = 'tool_started'
                   AND json_extract(started.json_body, '$.index') = json_extract(finished.json_body, '$.index')
                   AND json_extract(started.json_body, '$.key.ordinal') IS json_extract(finished.json_body, '$.key.ordinal')
                   OR started.kind = 'model_finished' AND json_extract(finished.json_body, '$.key') IS NULL
                   AND json_extract(started.json_body, '$.key') IS NULL
                   OR started.kind = 'run_started')
            ORDER BY started.seq DESC LIMIT 1) AS started,
           json_extract(finished.json_body, '$.key') IS NULL AS asked
    FROM events AS finished
    WHERE finished.kind = 'tool_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL,
           json_extract(begun.json_body, '$.index'), json_extract(begun.json_body, '$.call'), json_extract(begun.json_body, '$.tool'),
           begun.seq, json_extract(begun.json_body, '$.key') IS NULL
    FROM events AS begun
    WHERE begun.kind = 'tool_started'
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind = 'model_finished' AND json_extract(later.json_body, '$.key') IS NULL
                           AND json_extract(begun.json_body, '$.key') IS NULL
                           OR later.kind IN ('tool_started', 'tool_finished')
                           AND json_extract(later.json_body, '$.index') = json_extract(begun.json_body, '$.index')
                           AND json_extract(later.json_body, '$.key.ordinal') IS json_extract(begun.json_body, '$.key.ordinal'))
                    ORDER BY later.seq LIMIT 1), 'run_started') IN ('run_started', 'model_finished')
),
placed AS (
    SELECT calls.*,
           CASE WHEN asked THEN
               (SELECT reply.seq FROM events AS reply
                WHERE reply.session = calls.session AND reply.seq < calls.seq
                  AND reply.kind = 'model_finished' AND json_extract(reply.json_body, '$.key') IS NULL
                ORDER BY reply.seq DESC LIMIT 1) END AS message
    FROM calls
)
SELECT placed.session, placed.run, placed.agent, placed.seq, placed.message, placed.place,
       placed.session || '.' || placed.message || '$$' || placed.place AS id,
       placed.call, placed.tool,
       (SELECT CASE part.type WHEN 'object' THEN json_extract(part.value, '$.tool_call.arguments') END
        FROM json_each(reply.json_body, '$.message.parts') AS part
        WHERE CASE part.type WHEN 'object' THEN json_extract(part.value, '$.tool_call.id') END = placed.call LIMIT 1) AS arguments,
       json_extract(started.json_body, '$.allowed_by') AS allowed_by,
       CASE WHEN placed.finished_at IS NULL THEN 'unfinished'
            WHEN json_extract(placed.json_body, '$.denied') THEN 'denied'
            WHEN json_extract(placed.json_body, '$.result.is_error') THEN 'failed'
            ELSE 'succeeded' END AS status,
       CASE WHEN started.kind = 'tool_started' THEN started.at END AS started_at,
       placed.finished_at, json_extract(placed.json_body, '$.micros') AS micros,
       (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, char(10))
        FROM json_each(placed.json_body, '$.result.content') AS part) AS output
FROM placed
LEFT JOIN events AS reply ON reply.session = placed.session AND reply.seq = placed.message
LEFT JOIN events AS started ON started.session = placed.session AND started.seq = placed.started;
CREATE VIEW messages AS
WITH said AS (
    SELECT session, run, agent, seq, at, kind,
           CASE kind
               WHEN 'run_started' THEN CASE json_type(json_body, '$.prompt') WHEN 'object' THEN json_extract(json_body, '$.prompt') END
               WHEN 'compacted' THEN CASE json_type(json_body, '$.summary') WHEN 'object' THEN json_extract(json_body, '$.summary') END
               WHEN 'tool_finished' THEN json_object('role', 'tool', 'parts', json_array(
                   json_object('tool_result', CASE json_type(json_body, '$.result') WHEN 'object' THEN json_extract(json_body, '$.result') END)))
               WHEN 'run_finished' THEN json_object('role', 'assistant', 'parts', json_array(
                   json_object('text', CASE json_type(json_body, '$.outcome.text') WHEN 'text' THEN json_extract(json_body, '$.outcome.text') END)))
               ELSE CASE json_type(json_body, '$.message') WHEN 'object' THEN json_extract(json_body, '$.message') END
           END AS message
    FROM events AS said
    WHERE kind IN ('run_started', 'message_added', 'compacted')
       OR kind IN ('model_finished', 'tool_finished') AND json_extract(json_body, '$.key') IS NULL
       -- The answer of an agent whose model calls, if any, are no part of the conversation.
       OR kind = 'run_finished' AND json_extract(json_body, '$.outcome.status') = 'completed'
          AND json_extract(json_body, '$.outcome.text') <> ''
          AND 'run_started' = (SELECT before.kind FROM events AS before
                               WHERE before.session = said.session AND before.seq < said.seq AND before.run = said.run
                                 AND (before.kind = 'run_started' OR before.kind = 'model_finished'
                                                                     AND json_extract(before.json_body, '$.key') IS NULL)
                               ORDER BY before.seq DESC LIMIT 1)
)
SELECT session, run, agent, seq, at, kind, json_extract(message, '$.role') AS role,
       coalesce((SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, '')
                 FROM json_each(message, '$.parts') AS part),
                (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, char(10))
                 FROM json_each(message, '$.parts[0].tool_result.content') AS part),
                '') AS text,
       json_extract(message, '$.parts') AS parts
FROM said
WHERE json_array_length(message, '$.parts') > 0;
CREATE VIEW approvals AS
WITH asked AS (
    SELECT session, run, agent, seq, at, kind, json_extract(json_body, '$.id') AS id, json_extract(json_body, '$.tool') AS tool,
           json_extract(json_body, '$.arguments') AS arguments, json_extract(json_body, '$.rule') AS rule,
           json_extract(json_body, '$.decision') AS decision
    FROM events WHERE kind IN ('approval_requested', 'approval_decided')
)
SELECT session, id, min(run) AS run, min(agent) AS agent, min(seq) AS seq, min(tool) AS tool,
       min(arguments) AS arguments, min(rule) AS rule,
       coalesce(max(CASE WHEN decision <> 'later' THEN decision END), max(decision)) AS decision,
       min(CASE WHEN kind = 'approval_requested' THEN at END) AS asked_at,
       max(CASE WHEN kind = 'approval_decided' THEN at END) AS decided_at,
       max(CASE WHEN kind = 'approval_decided' THEN at END)
           - min(CASE WHEN kind = 'approval_requested' THEN at END) AS micros
FROM asked GROUP BY session, id;
CREATE VIEW agent_executions AS
WITH marks AS (
    SELECT session, run, agent, seq, at, kind,
           (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, '')
            FROM json_each(json_body, '$.prompt.parts') AS part) AS prompt,
           json_extract(json_body, '$.count') AS resumed,
           CASE json_type(json_body, '$.outcome.status')
               WHEN 'text' THEN json_extract(json_body, '$.outcome.status')
               WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.outcome.status') AS word)
           END AS status,
           coalesce(json_extract(json_body, '$.outcome.status.failed.kind'),
                    CASE json_type(json_body, '$.outcome.status.stopped')
                        WHEN 'text' THEN json_extract(json_body, '$.outcome.status.stopped')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.outcome.status.stopped') AS word)
                    END,
                    CASE json_type(json_body, '$.pause')
                        WHEN 'text' THEN json_extract(json_body, '$.pause')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.pause') AS word)
                    END) AS reason,
           json_extract(json_body, '$.outcome.status.failed.message') AS error_message,
           json_extract(json_body, '$.outcome.text') AS answer,
           min(coalesce(CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END
                        + CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END,
                        CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END,
                        CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END),
               9223372036854775807) AS input_tokens,
           min(coalesce(CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END
                        + CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END,
                        CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END,
                        CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END),
               9223372036854775807) AS output_tokens,
           min(CASE json_type(json_body, '$.cost') WHEN 'integer' THEN json_extract(json_body, '$.cost') END, 9223372036854775807) AS cost_pico
    FROM events WHERE kind IN ('run_started', 'run_resumed', 'run_paused', 'run_finished', 'model_finished')
),
runs AS (
    SELECT session, run, min(agent) AS agent, min(seq) AS seq, max(prompt) AS prompt, max(status) AS status,
           max(CASE WHEN kind = 'run_finished' THEN reason END) AS ended, max(error_message) AS error_message,
           -- The newest pause's: numbers of one length sort as text.
           substr(max(CASE WHEN kind = 'run_paused' THEN printf('%019d', seq) || reason END), 20) AS pause,
           max(CASE WHEN kind = 'run_paused' THEN seq END) AS paused_seq,
           max(CASE WHEN kind IN ('run_started', 'run_resumed') THEN seq END) AS begun_seq,
           coalesce(max(resumed), 0) AS resumed, max(answer) AS answer,
           min(CASE WHEN kind = 'run_started' THEN at END) AS started_at,
           max(CASE WHEN kind = 'run_finished' THEN at END) AS finished_at,
           count(CASE WHEN kind = 'model_finished' THEN 1 END) AS steps,
           CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico
    FROM marks GROUP BY session, run
)
SELECT session, run, agent, seq, prompt,
       CASE WHEN status IS NOT NULL THEN status WHEN paused_seq > begun_seq THEN 'paused' ELSE 'running' END AS status,
       CASE WHEN status IS NOT NULL THEN ended WHEN paused_seq > begun_seq THEN pause END AS reason,
       error_message, answer, resumed, started_at, finished_at, finished_at - started_at AS micros,
       steps, input_tokens, output_tokens, cost_pico
FROM runs;
CREATE VIEW tasks AS
SELECT runs.session, sessions.parent, sessions.role, runs.run, runs.agent, runs.prompt, runs.status, runs.reason,
       runs.error_message, runs.answer, runs.resumed, runs.started_at, runs.finished_at, runs.micros, runs.steps,
       runs.input_tokens, runs.output_tokens, runs.cost_pico
FROM agent_executions AS runs JOIN sessions ON sessions.id = runs.session
WHERE sessions.parent IS NOT NULL;
CREATE VIEW agents AS
WITH facts AS (
    SELECT agent, session, kind, at, json_extract(json_body, '$.agent') AS name,
           min(coalesce(CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END
                        + CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END,
                        CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END,
                        CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END),
               9223372036854775807) AS input_tokens,
           min(coalesce(CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END
                        + CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END,
                        CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END,
                        CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END),
               9223372036854775807) AS output_tokens,
           min(CASE json_type(json_body, '$.cost') WHEN 'integer' THEN json_extract(json_body, '$.cost') END, 9223372036854775807) AS cost_pico
    FROM events WHERE kind IN ('run_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
            THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;
CREATE VIEW agent_plans AS
WITH lists AS (
    SELECT session, run, agent, seq, at, json_body, max(seq) OVER (PARTITION BY session) AS newest
    FROM events WHERE kind = 'todos_changed'
)
SELECT lists.session, lists.run, lists.agent, lists.seq, lists.at, item.key AS place,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.content') END AS content,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.status') END AS status,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.active_form') END AS active_form,
       CASE WHEN lists.seq = lists.newest THEN 1 ELSE 0 END AS latest
FROM lists, json_each(lists.json_body, '$.todos') AS item;
CREATE VIEW agent_chat_sessions AS
SELECT id AS session, title, agent, status, run, messages, created, updated
FROM sessions WHERE parent IS NULL;
CREATE VIEW agent_chat_messages AS
SELECT messages.session, messages.run, messages.agent, messages.seq, messages.at, messages.role, messages.text
FROM messages JOIN sessions ON sessions.id = messages.session
WHERE sessions.parent IS NULL AND messages.role IN ('user', 'assistant') AND messages.kind <> 'compacted'
  AND messages.text <> '';
CREATE VIEW session_totals AS
WITH RECURSIVE below (top, id) AS (
    SELECT parent, id FROM sessions WHERE parent IS NOT NULL
    UNION ALL
    SELECT below.top, child.id FROM below JOIN sessions AS child ON child.parent = below.id
),
sums AS (
    SELECT below.top, count(*) AS sessions,
           CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
           CASE WHEN count(*) = count(cost_pico) THEN CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END END AS cost_pico
    FROM below JOIN sessions ON sessions.id = below.id GROUP BY below.top
)
SELECT own.id AS session, own.parent, coalesce(sums.sessions, 0) AS descendants,
       own.input_tokens AS own_input_tokens, own.output_tokens AS own_output_tokens, own.cost_pico AS own_cost_pico,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.input_tokens END AS descendants_input_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.output_tokens END AS descendants_output_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END AS descendants_cost_pico,
       min(coalesce(own.input_tokens + sums.input_tokens, own.input_tokens, sums.input_tokens),
           9223372036854775807) AS total_input_tokens,
       min(coalesce(own.output_tokens + sums.output_tokens, own.output_tokens, sums.output_tokens),
           9223372036854775807) AS total_output_tokens,
       min(own.cost_pico + CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END, 9223372036854775807)
           AS total_cost_pico
FROM sessions AS own LEFT JOIN sums ON sums.top = own.id;
