//! The agent loop through the public API: its contract, and attacks on it.
//!
//! No test sleeps for a race: order comes from gates, time from tokio's paused clock, crashes from a store that stands
//! still at a chosen append.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::needless_pass_by_value
)]

mod abandoned;
mod adopted;
mod afterwards;
mod agent_files;
mod anew;
mod answer_guards;
mod answers;
mod approvals;
mod attack_door;
mod attack_once;
mod away;
mod basics;
mod below;
mod bounds;
mod builtin;
mod bus;
mod cancel;
mod captain;
mod checkpoints;
mod common;
mod compaction;
mod compaction_bounds;
mod control;
mod costs;
mod crash;
mod crash_suite;
mod delegate;
mod deps;
mod display;
mod diverged;
mod door;
mod dropped;
mod effects;
mod engine;
mod engine_attacks;
mod events;
mod external;
mod failures;
mod floods;
mod fold;
mod generate;
mod given;
mod grants;
mod history;
mod judging;
mod keys;
mod labels;
mod layers_bounds;
mod layers_budget;
mod layers_cache;
mod layers_common;
mod layers_durations;
mod layers_fallback;
mod layers_play;
mod layers_rate_limit;
mod layers_record;
mod layers_record_wire;
mod layers_refresh;
mod layers_retry;
mod leaks;
mod leases;
mod loops;
mod meddler;
mod misbehaviour;
mod nested;
mod overtaken;
mod own_records;
mod panics;
mod past;
mod people;
mod permitted;
mod plan;
mod prepare;
mod prompt_guards;
mod prompts;
mod queue;
mod queued_once;
mod records;
mod recover;
mod replay;
mod replay_runs;
mod requests;
mod rewinding;
mod run_budget;
mod run_budget_lives;
mod run_budget_open;
mod run_budget_time;
mod scheduling;
mod scope;
mod slow_answers;
mod spans;
mod stood_still;
mod stopped;
mod stream_suite;
mod telemetry;
mod titles;
mod todos;
mod tool_calls;
mod tool_layer_allow;
mod tool_layer_ask;
mod tool_layer_suite;
mod tool_layers;
mod typed_agent;
mod usage;
mod waits;
