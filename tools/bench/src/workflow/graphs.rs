//! Request bodies of the measured graphs.

/// Returns two jobs in sequence: the workflow of the listing that others were measured with.
pub(crate) fn pair(start: &str) -> String {
    format!(
        r#"{{"name":"bench","start":"{start}","jobs":[{{"name":"prepare","handler":"Prepare","params":{{"foo":"bar"}}}},{{"name":"normalize","handler":"NormalizeJob","after":["prepare"]}}]}}"#
    )
}

/// Returns jobs in sequence.
pub(crate) fn chain(jobs: usize) -> String {
    graph("chain", jobs, |at| {
        let before = at.checked_sub(1);
        before.map_or(String::new(), |before| format!(r#""j{before}""#))
    })
}

/// Returns parallel jobs, and one after all of them.
pub(crate) fn join(parents: usize) -> String {
    let all = join_items((0..parents).map(|at| format!(r#""j{at}""#)));
    graph("join", parents + 1, |at| {
        if at == parents {
            all.clone()
        } else {
            String::new()
        }
    })
}

/// Returns layers of a hundred jobs, each after two of the layer before.
pub(crate) fn layers(jobs: usize) -> String {
    const WIDTH: usize = 100;
    graph("layers", jobs, |at| match at.checked_sub(WIDTH) {
        Some(above) if at % WIDTH > 0 => format!(r#""j{above}","j{}""#, above - 1),
        Some(above) => format!(r#""j{above}""#),
        None => String::new(),
    })
}

fn graph(name: &str, jobs: usize, after: impl Fn(usize) -> String) -> String {
    let jobs = join_items((0..jobs).map(|at| {
        let after = after(at);
        format!(r#"{{"name":"j{at}","handler":"Noop","after":[{after}]}}"#)
    }));
    format!(r#"{{"name":"{name}","jobs":[{jobs}]}}"#)
}

/// Returns the items of a JSON array.
pub(super) fn join_items(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// Returns parallel ready jobs, each with the result of [`limit`], or none. `due` is for jobs that
/// are timed.
pub(crate) fn limited(jobs: usize, limits: &str, due: Option<u64>) -> String {
    let due = due.map_or(String::new(), |due| format!(r#""due":{due}"#));
    let job = |at| format!(r#"{{"name":"j{at}","handler":"Call"{limits}}}"#);
    let jobs = join_items((0..jobs).map(job));
    format!(r#"{{"name":"bench","start":"now","globals":{{{due}}},"jobs":[{jobs}]}}"#)
}

/// Returns the part of a job that puts it under a limit of measured servers.
pub(crate) fn limit(key: &str, value: usize) -> String {
    format!(r#","limits":[{{"domain":"jobs","entries":[["{key}","{value}"]]}}]"#)
}
