//! `unisono check`: reads config files and says everything that is wrong with them.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::CliError;
use crate::config::{ConfigErrors, FileKind, NodeConfig};
use crate::definition::PipelineDefinition;

/// Arguments of `unisono check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Node configs and pipeline files, told apart by what they hold.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Checks all files; says on standard output which are right.
///
/// # Errors
/// Exit code 64 with every problem of every file.
pub fn check(args: &CheckArgs) -> Result<(), CliError> {
    let mut problems = Vec::new();
    let mut right = Vec::new();
    for file in &args.files {
        match check_file(file) {
            Ok(lines) => right.push(lines),
            Err(errors) => problems.extend(errors.problems),
        }
    }
    let mut out = std::io::stdout().lock();
    for line in right.into_iter().flatten() {
        // Who closes the pipe early has seen enough; the exit code still tells.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ConfigErrors { problems }.into())
    }
}

/// Checks one file; says what it is, and what is odd about it.
fn check_file(file: &Path) -> Result<Vec<String>, ConfigErrors> {
    let shown = file.display();
    let warned = |definition: &PipelineDefinition| -> Vec<String> {
        let name = &definition.name;
        let warnings = definition.warnings.iter();
        let lines = warnings.map(|warning| format!("{shown}: warning: pipeline {name}: {warning}"));
        lines.collect()
    };
    match FileKind::of(file)? {
        FileKind::Node => {
            let config = NodeConfig::load(file)?;
            let names: Vec<&str> = config.pipelines.iter().map(|p| p.name.as_str()).collect();
            let mut lines = vec![format!(
                "{shown}: node {} is right, pipelines: {}",
                config.node.id,
                names.join(", ")
            )];
            lines.extend(config.pipelines.iter().flat_map(warned));
            Ok(lines)
        }
        FileKind::Pipeline => {
            let definition = PipelineDefinition::load(file)?;
            let mut lines = vec![format!("{shown}: pipeline {} is right", definition.name)];
            lines.extend(warned(&definition));
            Ok(lines)
        }
    }
}
