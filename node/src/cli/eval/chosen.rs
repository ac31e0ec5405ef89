//! Which pipelines `eval` computes, and which files stand for their sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use unisono_engine::spec::TimeSource;

use super::EvalArgs;
use super::input::Input;
use crate::cli::error::CliError;
use crate::config::{FileKind, NodeConfig};
use crate::definition::PipelineDefinition;
use crate::feed::lane_label;
use crate::likeness::did_you_mean;

/// A pipeline, and its inputs: all are open before any is read, so that a wrong name is told at once.
pub struct Chosen {
    pub definition: PipelineDefinition,
    pub inputs: Vec<Input>,
}

/// The pipelines that the arguments name, in the order of their definitions.
///
/// # Errors
/// Exit code 64: definitions, names or files that cannot be used.
pub fn choose(args: &EvalArgs) -> Result<Vec<Chosen>, CliError> {
    let definitions = named(args, definitions(&args.definition)?)?;
    for definition in &definitions {
        check_time(definition)?;
    }
    check_sources(args, &definitions)?;
    let standard_input = Path::new("-");
    let mut files = args
        .files
        .iter()
        .chain(args.sources.iter().map(|(_, file)| file));
    if definitions.len() > 1 && files.any(|file| file == standard_input) {
        return Err(CliError::usage(
            "the standard input can be read once, and there are several pipelines",
        )
        .hint("name one of them: --pipeline NAME"));
    }
    let chosen = definitions.into_iter().map(|definition| {
        let inputs = inputs(args, &definition)?;
        Ok(Chosen { definition, inputs })
    });
    chosen.collect()
}

fn definitions(file: &Path) -> Result<Vec<PipelineDefinition>, CliError> {
    Ok(match FileKind::of(file)? {
        FileKind::Pipeline => vec![PipelineDefinition::load(file)?],
        FileKind::Node => NodeConfig::load(file)?.pipelines,
    })
}

/// Those with the names of `--pipeline`; all, without it.
fn named(
    args: &EvalArgs,
    mut definitions: Vec<PipelineDefinition>,
) -> Result<Vec<PipelineDefinition>, CliError> {
    let known: Vec<String> = definitions.iter().map(|it| it.name.clone()).collect();
    for name in &args.pipelines {
        if !known.contains(name) {
            let like = did_you_mean(name, known.iter().map(String::as_str));
            let hint = format!("the pipelines are {}", known.join(", "));
            let shown = args.definition.display();
            return Err(
                CliError::usage(format!("{shown} has no pipeline \"{name}\"{like}")).hint(hint),
            );
        }
    }
    if !args.pipelines.is_empty() {
        definitions.retain(|definition| args.pipelines.contains(&definition.name));
    }
    Ok(definitions)
}

fn check_time(definition: &PipelineDefinition) -> Result<(), CliError> {
    if matches!(definition.spec.time, TimeSource::AppendTime) {
        return Err(CliError::usage(format!(
            "files have no append time, which pipeline {} goes by",
            definition.name
        ))
        .hint("name a field that holds the time: time = { field = \"created_at\" }"));
    }
    Ok(())
}

/// Either files stand for all sources alike, or each source is given its own.
fn check_sources(args: &EvalArgs, definitions: &[PipelineDefinition]) -> Result<(), CliError> {
    if args.sources.is_empty() {
        return Ok(());
    }
    if !args.files.is_empty() {
        return Err(
            CliError::usage("files are given both with and without a source")
                .hint("give each with its source: --source NAME=FILE"),
        );
    }
    let known: BTreeSet<&str> = definitions
        .iter()
        .flat_map(|it| &it.sources)
        .map(String::as_str)
        .collect();
    for (source, _) in &args.sources {
        if !known.contains(source.as_str()) {
            let like = did_you_mean(source, known.iter().copied());
            let known: Vec<_> = known.into_iter().collect();
            return Err(
                CliError::usage(format!("no pipeline reads a source \"{source}\"{like}"))
                    .hint(format!("the sources are {}", known.join(", "))),
            );
        }
    }
    for definition in definitions {
        let is_given = |name: &String| args.sources.iter().any(|(source, _)| source == name);
        if let Some(missing) = definition.sources.iter().find(|name| !is_given(name)) {
            return Err(CliError::usage(format!(
                "pipeline {} reads source \"{missing}\" too, and no file stands for it",
                definition.name
            ))
            .hint(format!(
                "give --source {missing}=FILE, or choose other pipelines with --pipeline NAME"
            )));
        }
    }
    Ok(())
}

/// The inputs of one pipeline. Those of a source are lanes named as live: source and file name.
fn inputs(args: &EvalArgs, definition: &PipelineDefinition) -> Result<Vec<Input>, CliError> {
    if args.sources.is_empty() {
        return super::input::open_all(&args.files, super::framing(definition));
    }
    let own = args
        .sources
        .iter()
        .filter(|(source, _)| definition.sources.contains(source));
    let own: Vec<&(String, PathBuf)> = own.collect();
    let files: Vec<PathBuf> = own.iter().map(|(_, file)| file.clone()).collect();
    let inputs = super::input::open_all(&files, super::framing(definition))?;
    let mut labels = BTreeSet::new();
    let label = |(source, file): &(String, PathBuf)| {
        let name = file
            .file_name()
            .unwrap_or(file.as_os_str())
            .to_string_lossy();
        let label = lane_label(source, &name);
        // Two files of one name lie in different directories.
        match labels.insert(label.clone()) {
            true => label,
            false => lane_label(source, &file.to_string_lossy()),
        }
    };
    let labels = own.into_iter().map(label);
    Ok(inputs
        .into_iter()
        .zip(labels)
        .map(|(input, label)| input.called(label))
        .collect())
}
