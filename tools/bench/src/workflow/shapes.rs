//! The graphs that are measured, as request bodies.

use std::fmt::Write as _;

/// Two jobs, one after the other: the workflow of the listing that others were measured with.
pub(crate) fn pair(start: &str) -> String {
    format!(
        r#"{{"name":"bench","start":"{start}","jobs":[{{"name":"prepare","handler":"Prepare","params":{{"foo":"bar"}}}},{{"name":"normalize","handler":"NormalizeJob","after":["prepare"]}}]}}"#
    )
}

/// Many of one workflow.
pub(crate) fn batch(one: &str, count: usize) -> String {
    let mut body = String::with_capacity(count * (one.len() + 1) + 32);
    body.push_str("{\"workflows\":[");
    for at in 0..count {
        if at > 0 {
            body.push(',');
        }
        body.push_str(one);
    }
    body.push_str("]}");
    body
}

/// Workflows of two jobs, each with a name and a queue of its own, which these numbers tell apart.
pub(crate) fn of_names(numbers: impl Iterator<Item = usize>) -> String {
    let each = numbers.map(|at| {
        format!(
            r#"{{"name":"n{at:06}","start":"manual","jobs":[{{"name":"prepare","handler":"Prepare","queue":"q{at:06}"}},{{"name":"normalize","handler":"NormalizeJob","queue":"q{at:06}","after":["prepare"]}}]}}"#
        )
    });
    format!("{{\"workflows\":[{}]}}", each.collect::<Vec<_>>().join(","))
}

/// Ready jobs in a queue of their own.
pub(crate) fn watched(jobs: usize) -> String {
    let job = |at| format!(r#"{{"name":"j{at}","handler":"Noop","queue":"watched"}}"#);
    let jobs: Vec<String> = (0..jobs).map(job).collect();
    format!(
        r#"{{"name":"watched","start":"now","jobs":[{}]}}"#,
        jobs.join(",")
    )
}

/// Jobs one after the other.
pub(crate) fn chain(jobs: usize) -> String {
    graph("chain", jobs, |at| {
        if at == 0 {
            String::new()
        } else {
            format!(r#""j{}""#, at - 1)
        }
    })
}

/// Jobs side by side, and one after all of them.
pub(crate) fn join(parents: usize) -> String {
    let all: Vec<String> = (0..parents).map(|at| format!(r#""j{at}""#)).collect();
    let all = all.join(",");
    graph("join", parents + 1, |at| {
        if at == parents {
            all.clone()
        } else {
            String::new()
        }
    })
}

/// A hundred jobs in each of several layers, each after two of the layer before.
pub(crate) fn layers(jobs: usize) -> String {
    const WIDTH: usize = 100;
    graph("layers", jobs, |at| match at.checked_sub(WIDTH) {
        Some(above) if at % WIDTH > 0 => format!(r#""j{above}","j{}""#, above - 1),
        Some(above) => format!(r#""j{above}""#),
        None => String::new(),
    })
}

fn graph(name: &str, jobs: usize, after: impl Fn(usize) -> String) -> String {
    let mut body = format!(r#"{{"name":"{name}","jobs":["#);
    for at in 0..jobs {
        let comma = if at > 0 { "," } else { "" };
        write!(
            body,
            r#"{comma}{{"name":"j{at}","handler":"Noop","after":[{}]}}"#,
            after(at)
        )
        .expect("writing to a string cannot fail");
    }
    body.push_str("]}");
    body
}
