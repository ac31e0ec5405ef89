//! `unisono check`: reads config files and says everything that is wrong with them.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::machine::look_around;
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
        match check_file(file)? {
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

/// Checks one file; says what it is, and what is odd about it, or all that is wrong with it.
fn check_file(file: &Path) -> Result<Result<Vec<String>, ConfigErrors>, CliError> {
    let kind = match FileKind::of(file) {
        Ok(kind) => kind,
        Err(errors) => return Ok(Err(errors)),
    };
    Ok(match kind {
        FileKind::Pipeline => PipelineDefinition::load(file).map(|definition| {
            let mut lines = vec![format!(
                "{}: pipeline {} is right",
                file.display(),
                definition.name
            )];
            lines.extend(warnings(file, &definition));
            lines
        }),
        FileKind::Node => match NodeConfig::load(file) {
            Ok(config) => check_node(file, &config)?,
            Err(errors) => Err(errors),
        },
    })
}

/// What is odd about a definition, a line each.
fn warnings(file: &Path, definition: &PipelineDefinition) -> Vec<String> {
    let (shown, name) = (file.display(), &definition.name);
    let warnings = definition.warnings.iter();
    let lines = warnings.map(|warning| format!("{shown}: warning: pipeline {name}: {warning}"));
    lines.collect()
}

/// Looks whether a config that is right fits this machine.
fn check_node(
    file: &Path,
    config: &NodeConfig,
) -> Result<Result<Vec<String>, ConfigErrors>, CliError> {
    let looked = look_around(config)?;
    if !looked.problems.is_empty() {
        let problems = looked.problems;
        return Ok(Err(ConfigErrors { problems }));
    }
    let names: Vec<&str> = config.pipelines.iter().map(|p| p.name.as_str()).collect();
    let mut lines = vec![format!(
        "{}: node {} is right, pipelines: {}",
        file.display(),
        config.node.id,
        names.join(", ")
    )];
    lines.extend(
        looked
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.extend(config.pipelines.iter().flat_map(|p| warnings(file, p)));
    Ok(Ok(lines))
}
