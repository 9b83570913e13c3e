//! Measures how close a `TaskGraph` comes to the best schedule: graphs in the format of the Standard Task Graph Set,
//! run with agents that only take their time, on a clock that advances only when nothing else is left to do.
//!
//! Without a file it runs the sample in `examples/stg` on 2, 4, 8 and 16 workers. It prints a line per file: its name,
//! and the time of the graph relative to a lower bound and to a textbook's list schedule.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its terminal")]

mod generate;
mod reference;
mod run;
mod stg;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use reference::{bound, list_schedule};
use stg::Stg;

const USAGE: &str = "usage: schedule_stg [--workers K] [FILE...]\n       schedule_stg --generate DIR";

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/stg");

#[derive(Debug, Default)]
struct Args {
    workers: Option<usize>,
    generate: Option<PathBuf>,
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    if std::env::args_os().skip(1).any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = match Args::parse(std::env::args_os().skip(1)) {
        Ok(Args { generate: Some(folder), .. }) => generate(&folder),
        Ok(args) => measure(&args),
        Err(error) => Err(format!("{error}\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<(), String> {
    let files = if args.files.is_empty() { sample()? } else { args.files.clone() };
    // All are read before anything runs.
    let graphs = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let mut ratios = Vec::new();
    for workers in args.workers.map_or(vec![2, 4, 8, 16], |workers| vec![workers]) {
        println!("workers {workers}");
        for (file, graph) in files.iter().zip(&graphs) {
            let took =
                run::makespan(graph, workers).map_err(|error| format!("{}: {error}", file.display()))?;
            let to_bound = ratio(took, bound(graph, workers));
            let to_reference = ratio(took, list_schedule(graph, workers) as f64);
            println!("ratio {} {to_bound:.4} {to_reference:.4}", file.display());
            ratios.push((to_bound, to_reference));
        }
    }
    let mean = |of: fn(&(f64, f64)) -> f64| ratios.iter().map(of).sum::<f64>() / ratios.len() as f64;
    println!("mean ratio {:.4} {:.4}", mean(|ratio| ratio.0), mean(|ratio| ratio.1));
    Ok(())
}

/// Ratio of two times; 1 for an empty graph, which takes no time.
fn ratio(took: u64, of: f64) -> f64 {
    if of > 0.0 { took as f64 / of } else { 1.0 }
}

fn read(file: &Path) -> Result<Stg, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = fs::read(file).map_err(|error| said(&error))?;
    // Remarks may be in any encoding.
    Stg::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| said(&error))
}

fn sample() -> Result<Vec<PathBuf>, String> {
    let folder = fs::read_dir(SAMPLE).map_err(|error| format!("{SAMPLE}: {error}"))?;
    let mut files: Vec<_> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "stg"));
    files.sort();
    if files.is_empty() { Err(format!("{SAMPLE}: no sample; make it with --generate")) } else { Ok(files) }
}

fn generate(folder: &Path) -> Result<(), String> {
    for (name, text) in generate::sample() {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

impl Args {
    fn parse(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Self, String> {
        let mut args = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--workers") => {
                    let workers = words.next().and_then(|word| word.to_str()?.parse().ok());
                    args.workers = workers.filter(|workers| *workers > 0);
                    args.workers.ok_or("--workers takes a number from 1 on")?;
                }
                Some("--generate") => {
                    args.generate = Some(words.next().ok_or("--generate takes a folder")?.into());
                }
                Some(option) if option.starts_with("--") => return Err(format!("no such option: {option}")),
                _ => args.files.push(word.into()),
            }
        }
        Ok(args)
    }
}
