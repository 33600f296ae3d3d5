//! `tidegate check`: rate limit configuration and definitions of workflows, read as the server would read them.

mod report;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tidegate_api::check_definition;
use tidegate_cli::{Definition, fields_of};
use tidegate_ratelimit::{Configuration, SameDomain, Source};

use super::Check;
pub(crate) use report::Report;
use report::{Checked, Mistake};

/// What is said of a file that is neither.
const NEITHER: &str = "this is neither a rate limit configuration, which has `domain` and `descriptors`, nor a workflow definition, which \
                       has `name` and `jobs`";

/// Reads all files and reports on them.
pub(crate) fn check(arguments: &Check) -> Report {
    let (mut report, mut checked, mut configurations) = (Report::default(), Checked::default(), Vec::new());
    for path in arguments.paths.iter().flat_map(|path| files(path, &mut report)).collect::<Vec<_>>() {
        let source = match read(&path) {
            Ok(text) => Source { name: name(&path), text },
            Err(error) => {
                report.unreadable(&path, &error);
                continue;
            }
        };
        checked.files += 1;
        if is_configuration(&source) {
            configurations.push(source);
            continue;
        }
        match definition(&path, &source) {
            Ok(()) => checked.definitions += 1,
            Err(mistake) => report.mistake(&mistake, &source.text),
        }
    }
    let same_domain = if arguments.merge_domain_configs { SameDomain::Merge } else { SameDomain::Refuse };
    checked.configuration = load(&configurations, same_domain, &mut report);
    report.summary(&checked);
    report
}

fn load(sources: &[Source], same_domain: SameDomain, report: &mut Report) -> Option<Configuration> {
    if sources.is_empty() {
        return None;
    }
    let texts: BTreeMap<_, _> = sources.iter().map(|source| (source.name.as_str(), source.text.as_slice())).collect();
    let loaded = Configuration::load(sources, same_domain);
    for error in loaded.as_ref().err().into_iter().flatten() {
        report.mistake(&Mistake::from(error), texts.get(error.file.as_str()).copied().unwrap_or_default());
    }
    loaded.ok()
}

/// `path` itself, or the files of the folder that it is.
fn files(path: &Path, report: &mut Report) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            report.unreadable(path, &error);
            return Vec::new();
        }
    };
    let hidden = |file: &Path| file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut files: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|file| file.is_file() && !hidden(file)).collect();
    files.sort();
    files
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return fs::read(path);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text).map(|_| text)
}

fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn is_configuration(source: &Source) -> bool {
    let fields = fields_of(&String::from_utf8_lossy(&source.text));
    fields.iter().any(|field| field == "domain" || field == "descriptors")
}

fn definition(path: &Path, source: &Source) -> Result<(), Mistake> {
    let file = &source.name;
    let text = String::from_utf8(source.text.clone())
        .map_err(|error| Mistake::new(file, None, format!("this is not UTF-8: {error}")))?;
    let has_jobs = fields_of(&text).iter().any(|field| field == "jobs");
    let definition = match Definition::parse(path, text) {
        Ok(_) if !has_jobs => return Err(Mistake::new(file, None, NEITHER)),
        Ok(definition) => definition,
        Err(mistake) if mistake.place.is_none() => return Err(Mistake::new(file, None, NEITHER)),
        Err(mistake) => return Err(Mistake::new(file, mistake.place, mistake.reason)),
    };
    check_definition(&definition.json()).map_err(|found| {
        let path = found.path.unwrap_or_default();
        let mistake = definition.mistake(&path, &found.detail);
        Mistake::new(file, mistake.place, mistake.reason).at(path)
    })
}
