//! What a finished spec must satisfy, whoever wrote it: the client checks so that a person hears of a mistake at once, the
//! controller so that nothing else gets into the log.

use std::collections::BTreeSet;

use crate::model::{
    Backend, Bytes, Container, GpuRequest, JobId, JobSpec, Layout, LostAfter, MilliCpus, Millis,
    RetryCause,
};

/// What is wrong with a spec: one field, one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct SpecError {
    /// As the field is called in a spec file (`gpu_memory`, `time_limit`, …).
    pub field: &'static str,
    pub message: String,
}

type Check = Result<(), SpecError>;

impl JobSpec {
    /// All texts of a spec together: command, environment, labels and the rest.
    pub const MAX_SIZE: usize = 1 << 20;
    /// The kernel starts no program with a longer argument or variable (`MAX_ARG_STRLEN`, with its final NUL).
    pub const MAX_WORD: usize = (128 << 10) - 1;
    pub const MAX_NAME: usize = 200;
    pub const MAX_NODES: u32 = 1024;
    /// Of one node.
    pub const MAX_GPUS: u32 = 1024;
    pub const MAX_CPUS: MilliCpus = MilliCpus::from_cores(100_000);
    pub const MAX_MEMORY: Bytes = Bytes(1 << 50);
    pub const MAX_RETRIES: u32 = 100;
    pub const MAX_GRACE: Millis = Millis::from_hours(24);
    pub const MAX_DEPENDENCIES: usize = 1000;

    /// Whether this spec can be run at all, by a cluster of any size.
    ///
    /// # Errors
    /// Names the first field that is wrong, and what would be right.
    pub fn check(&self) -> Check {
        self.check_size()?;
        check_name("name", "the job's name", &self.name)?;
        check_queue(self.queue.as_str())?;
        at_most("priority", u64::from(self.priority), u64::from(Self::MAX_PRIORITY))?;
        self.check_request()?;
        self.check_layout()?;
        self.check_command()?;
        self.check_env()?;
        if let Some(dir) = &self.working_dir {
            check_path("working_dir", dir)?;
        }
        self.check_container()?;
        self.check_times()?;
        self.check_ends()?;
        self.check_array()?;
        self.check_dependencies()?;
        self.labels.iter().try_for_each(|(key, value)| check_label(key, value))
    }

    fn check_size(&self) -> Check {
        let texts = self.command.iter().chain(self.env.keys()).chain(self.env.values());
        let labels = self.labels.keys().chain(self.labels.values());
        let volumes =
            self.container.iter().flat_map(|it| it.volumes.keys().chain(it.volumes.values()));
        let size: usize = texts.chain(labels).chain(volumes).map(String::len).sum();
        match size > Self::MAX_SIZE {
            true => wrong("spec", format!("is {} in size; at most 1M", Bytes(size as u64))),
            false => Ok(()),
        }
    }

    fn check_request(&self) -> Check {
        let request = &self.request;
        if request.cpus == MilliCpus(0) {
            return wrong("cpus", "must be more than 0 (fractions such as 0.5 are fine)");
        }
        if request.cpus > Self::MAX_CPUS {
            return wrong("cpus", format!("is {}; at most {}", request.cpus, Self::MAX_CPUS));
        }
        if request.memory > Self::MAX_MEMORY {
            return wrong("memory", format!("is {}; at most {}", request.memory, Self::MAX_MEMORY));
        }
        check_gpus(&request.gpus)
    }

    fn check_layout(&self) -> Check {
        match self.layout {
            Layout::Nodes(0) => wrong("nodes", "must be at least 1"),
            Layout::Nodes(nodes) => at_most("nodes", u64::from(nodes), u64::from(Self::MAX_NODES)),
            Layout::Anywhere if self.request.gpus.count == 0 => {
                wrong("nodes", "`any` spreads GPUs, but the job asks for none")
            }
            Layout::Single | Layout::Anywhere => Ok(()),
        }
    }

    fn check_command(&self) -> Check {
        let Some(program) = self.command.first() else {
            return wrong("command", "is empty");
        };
        if program.trim().is_empty() {
            return wrong("command", "the program's name is empty");
        }
        if let Some(what) = control(program) {
            return wrong("command", format!("the program's name has a {what} in it"));
        }
        for (place, word) in self.command.iter().enumerate() {
            if word.contains('\0') {
                return wrong("command", format!("argument {place} has a NUL byte in it"));
            }
            if word.len() > Self::MAX_WORD {
                let size = Bytes(word.len() as u64);
                return wrong(
                    "command",
                    format!(
                        "argument {place} is {size} long; no program can be started with one over 128K"
                    ),
                );
            }
        }
        Ok(())
    }

    fn check_env(&self) -> Check {
        for (name, value) in &self.env {
            if name.is_empty() {
                return wrong("env", "a variable has no name");
            }
            if let Some(odd) =
                name.chars().find(|c| *c == '=' || c.is_whitespace() || c.is_control())
            {
                return wrong("env", format!("the name {name:?} has {odd:?} in it"));
            }
            if let Some(what) = control(value) {
                return wrong("env", format!("the value of `{name}` has a {what} in it"));
            }
            if name.len() + 1 + value.len() > Self::MAX_WORD {
                let size = Bytes(value.len() as u64);
                return wrong(
                    "env",
                    format!(
                        "`{name}` is {size} long; no program can be started with one over 128K"
                    ),
                );
            }
        }
        Ok(())
    }

    fn check_container(&self) -> Check {
        match (&self.container, self.backend) {
            (None, Backend::Docker) => {
                wrong("container", "the docker backend needs an image, but none is named")
            }
            (None, Backend::Native | Backend::Distributed) => Ok(()),
            (Some(Container { image, volumes }), _) => {
                check_name("container", "the image's name", image)?;
                if image.contains(' ') {
                    return wrong(
                        "container",
                        format!("the image's name {image:?} has a space in it"),
                    );
                }
                for path in volumes.iter().flat_map(|(host, inside)| [host, inside]) {
                    check_path("volumes", path)?;
                }
                Ok(())
            }
        }
    }

    fn check_times(&self) -> Check {
        if self.time_limit == Some(Millis(0)) {
            return wrong("time_limit", "must be longer than 0");
        }
        if self.stop.grace > Self::MAX_GRACE {
            return wrong("grace", format!("is {}; at most {}", self.stop.grace, Self::MAX_GRACE));
        }
        if self.checkpoint.as_ref().is_some_and(|it| it.interval == Millis(0)) {
            return wrong("checkpoint", "the interval must be longer than 0");
        }
        match self.lost_after {
            Some(LostAfter::After(length)) if length < Millis::from_secs(1) => {
                wrong("lost_after", "must be at least 1s")
            }
            Some(LostAfter::After(_) | LostAfter::Keep) | None => Ok(()),
        }
    }

    fn check_ends(&self) -> Check {
        at_most("retry", u64::from(self.retry.max), u64::from(Self::MAX_RETRIES))?;
        for cause in &self.retry.on {
            match cause {
                RetryCause::ExitCode(code) if !(1..=255).contains(code) => {
                    return wrong("retry", format!("exit code {code} is not one of 1 to 255"));
                }
                RetryCause::ExitCode(_)
                | RetryCause::Failure
                | RetryCause::Signal
                | RetryCause::OutOfMemory
                | RetryCause::Timeout
                | RetryCause::StartFailed => {}
            }
        }
        match self.stop.signal {
            1..=64 => Ok(()),
            signal => wrong("signal", format!("{signal} is not one of 1 to 64")),
        }
    }

    fn check_array(&self) -> Check {
        let Some(array) = &self.array else { return Ok(()) };
        let tasks = array.indices.len();
        if tasks == 0 {
            return wrong("array", "has no task in it");
        }
        if tasks > Self::MAX_TASKS {
            return wrong("array", format!("has {tasks} tasks; at most {}", Self::MAX_TASKS));
        }
        let ranges = array.indices.ranges().count();
        if ranges > Self::MAX_RANGES {
            return wrong(
                "array",
                format!(
                    "its indices are {ranges} separate ranges; at most {} (0-9 is one, 0-9:2 is five)",
                    Self::MAX_RANGES
                ),
            );
        }
        match array.max_running {
            Some(0) => wrong("array", "lets 0 tasks run at a time; at least 1"),
            Some(_) | None => Ok(()),
        }
    }

    fn check_dependencies(&self) -> Check {
        if self.dependencies.len() > Self::MAX_DEPENDENCIES {
            let count = self.dependencies.len();
            return wrong(
                "depends_on",
                format!("names {count} jobs; at most {}", Self::MAX_DEPENDENCIES),
            );
        }
        let mut seen = BTreeSet::new();
        for dependency in &self.dependencies {
            if dependency.job == JobId(0) {
                return wrong("depends_on", "there is no job 0");
            }
            if !seen.insert(dependency.job) {
                return wrong(
                    "depends_on",
                    format!("names job {} twice; one condition each", dependency.job),
                );
            }
        }
        Ok(())
    }
}

fn check_gpus(gpus: &GpuRequest) -> Check {
    at_most("gpus", u64::from(gpus.count), u64::from(JobSpec::MAX_GPUS))?;
    if let Some(memory) = gpus.memory {
        if gpus.count == 0 {
            return wrong("gpu_memory", "is asked for, but `gpus` is 0");
        }
        if memory == Bytes(0) || memory > JobSpec::MAX_MEMORY {
            return wrong(
                "gpu_memory",
                format!("is {memory}; more than 0, at most {}", JobSpec::MAX_MEMORY),
            );
        }
    }
    if gpus.sharing && gpus.memory.is_none() {
        return wrong("gpu_sharing", "needs `gpu_memory`, which says how much of the GPU is taken");
    }
    match &gpus.model {
        Some(model) => check_name("gpu", "the GPU's model", model),
        None => Ok(()),
    }
}

fn check_name(field: &'static str, what: &str, name: &str) -> Check {
    if name.trim().is_empty() {
        return wrong(field, format!("{what} is empty"));
    }
    if let Some(control) = control(name) {
        return wrong(field, format!("{what} has a {control} in it"));
    }
    if name.len() > JobSpec::MAX_NAME {
        let most = JobSpec::MAX_NAME;
        return wrong(field, format!("{what} is {} bytes long; at most {most}", name.len()));
    }
    Ok(())
}

fn check_queue(name: &str) -> Check {
    check_name("queue", "the queue's name", name)?;
    let odd = name.chars().find(|c| !c.is_alphanumeric() && !"-_.".contains(*c));
    match odd {
        Some(odd) => wrong(
            "queue",
            format!(
                "the name `{name}` has {odd:?} in it; letters, digits, `-`, `_` and `.` are fine"
            ),
        ),
        None => Ok(()),
    }
}

fn check_path(field: &'static str, path: &str) -> Check {
    if let Some(control) = control(path) {
        return wrong(field, format!("the path {path:?} has a {control} in it"));
    }
    match path.starts_with('/') {
        true => Ok(()),
        false => wrong(field, format!("`{path}` is not an absolute path")),
    }
}

fn check_label(key: &str, value: &str) -> Check {
    check_name("labels", "a label's name", key)?;
    match control(value) {
        Some(control) => wrong("labels", format!("the value of `{key}` has a {control} in it")),
        None => Ok(()),
    }
}

/// The first character that belongs into no name and no variable, in words.
fn control(text: &str) -> Option<&'static str> {
    text.chars().find(|c| c.is_control() && *c != '\t').map(|c| match c {
        '\0' => "NUL byte",
        '\n' | '\r' => "line break",
        _ => "control character",
    })
}

fn at_most(field: &'static str, value: u64, most: u64) -> Check {
    match value > most {
        true => wrong(field, format!("is {value}; at most {most}")),
        false => Ok(()),
    }
}

fn wrong(field: &'static str, message: impl Into<String>) -> Check {
    Err(SpecError { field, message: message.into() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::model::{Array, Dependency, DependencyKind, IndexSet, Retry, Stop};

    fn check(change: impl FnOnce(&mut JobSpec), expected: Expect) {
        let mut spec = JobSpec::default();
        change(&mut spec);
        let text = spec.check().map_or_else(|fault| fault.to_string(), |()| String::from("fine"));
        expected.assert_eq(&text);
    }

    #[test]
    fn names_and_words() {
        check(|_| (), expect!["fine"]);
        check(|spec| spec.name.clear(), expect!["name: the job's name is empty"]);
        check(
            |spec| spec.name = "a\nb".into(),
            expect!["name: the job's name has a line break in it"],
        );
        check(
            |spec| spec.name = "a\0b".into(),
            expect!["name: the job's name has a NUL byte in it"],
        );
        check(
            |spec| spec.name = "n".repeat(201),
            expect!["name: the job's name is 201 bytes long; at most 200"],
        );
        check(
            |spec| spec.queue = "a b".into(),
            expect![[
                r#"queue: the name `a b` has ' ' in it; letters, digits, `-`, `_` and `.` are fine"#
            ]],
        );
        check(|spec| spec.command.clear(), expect!["command: is empty"]);
        check(
            |spec| spec.command = vec![" ".into()],
            expect!["command: the program's name is empty"],
        );
        check(
            |spec| spec.command = vec!["sh".into(), "-c".into(), "two\nlines".into()],
            expect!["fine"],
        );
        check(
            |spec| spec.command.push("\0".into()),
            expect!["command: argument 1 has a NUL byte in it"],
        );
        check(
            |spec| spec.command.push("x".repeat(128 << 10)),
            expect![
                "command: argument 1 is 128K long; no program can be started with one over 128K"
            ],
        );
        check(
            |spec| spec.command.extend((0..20).map(|_| "x".repeat(100 << 10))),
            expect!["spec: is 1.9M in size; at most 1M"],
        );
    }

    #[test]
    fn environment() {
        let with = |name: &str, value: &str, expected| {
            check(|spec| drop(spec.env.insert(name.into(), value.into())), expected);
        };
        with("A", "", expect!["fine"]);
        with("", "1", expect!["env: a variable has no name"]);
        with("A=B", "1", expect![[r#"env: the name "A=B" has '=' in it"#]]);
        with("A\0", "1", expect![[r#"env: the name "A\0" has '\0' in it"#]]);
        with("A", "1\n2", expect!["env: the value of `A` has a line break in it"]);
        with("A", "1\0", expect!["env: the value of `A` has a NUL byte in it"]);
    }

    #[test]
    fn quantities() {
        check(
            |spec| spec.request.cpus = MilliCpus(0),
            expect!["cpus: must be more than 0 (fractions such as 0.5 are fine)"],
        );
        check(
            |spec| spec.request.cpus = MilliCpus::from_cores(1_000_000),
            expect!["cpus: is 1000000; at most 100000"],
        );
        check(
            |spec| spec.request.memory = Bytes(1 << 60),
            expect!["memory: is 1048576T; at most 1024T"],
        );
        check(|spec| spec.request.gpus.count = 5000, expect!["gpus: is 5000; at most 1024"]);
        check(
            |spec| spec.request.gpus.memory = Some(Bytes(1)),
            expect!["gpu_memory: is asked for, but `gpus` is 0"],
        );
        check(
            |spec| {
                spec.request.gpus.count = 1;
                spec.request.gpus.sharing = true;
            },
            expect!["gpu_sharing: needs `gpu_memory`, which says how much of the GPU is taken"],
        );
        check(|spec| spec.layout = Layout::Nodes(0), expect!["nodes: must be at least 1"]);
        check(|spec| spec.priority = 1_000_001, expect!["priority: is 1000001; at most 1000000"]);
        check(
            |spec| spec.time_limit = Some(Millis(0)),
            expect!["time_limit: must be longer than 0"],
        );
        check(
            |spec| spec.retry = Retry { max: 101, ..Retry::default() },
            expect!["retry: is 101; at most 100"],
        );
        check(
            |spec| spec.retry.on = [RetryCause::ExitCode(0)].into(),
            expect!["retry: exit code 0 is not one of 1 to 255"],
        );
        check(
            |spec| spec.stop = Stop { signal: 99, ..Stop::default() },
            expect!["signal: 99 is not one of 1 to 64"],
        );
    }

    #[test]
    fn arrays_and_dependencies() {
        let array = |spec: &mut JobSpec, indices, max_running| {
            spec.array = Some(Array { indices, max_running });
        };
        check(|spec| array(spec, IndexSet::new(), None), expect!["array: has no task in it"]);
        check(
            |spec| array(spec, IndexSet::from_range(0, 1_000_000), None),
            expect!["array: has 1000001 tasks; at most 1000000"],
        );
        check(
            |spec| array(spec, (0..1_000).map(|index| 2 * index).collect(), None),
            expect!["fine"],
        );
        check(
            |spec| array(spec, "0-999999:2".parse().unwrap(), None),
            expect![
                "array: its indices are 500000 separate ranges; at most 1000 (0-9 is one, 0-9:2 is five)"
            ],
        );
        check(
            |spec| array(spec, IndexSet::from_range(0, 9), Some(0)),
            expect!["array: lets 0 tasks run at a time; at least 1"],
        );
        let after = |kind, job| Dependency { kind, job: JobId(job) };
        check(
            |spec| {
                spec.dependencies =
                    vec![after(DependencyKind::AfterOk, 3), after(DependencyKind::AfterAny, 3)];
            },
            expect!["depends_on: names job 3 twice; one condition each"],
        );
        check(
            |spec| spec.dependencies = vec![after(DependencyKind::AfterOk, 0)],
            expect!["depends_on: there is no job 0"],
        );
    }

    #[test]
    fn containers_and_paths() {
        check(
            |spec| spec.backend = Backend::Docker,
            expect!["container: the docker backend needs an image, but none is named"],
        );
        let container = |image: &str, volumes: &[(&str, &str)]| {
            let volumes: BTreeMap<String, String> =
                volumes.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
            Some(Container { image: image.into(), volumes })
        };
        check(
            |spec| spec.container = container("", &[]),
            expect!["container: the image's name is empty"],
        );
        check(
            |spec| spec.container = container("cuda:12", &[("data", "/data")]),
            expect!["volumes: `data` is not an absolute path"],
        );
        check(
            |spec| spec.working_dir = Some("here".into()),
            expect!["working_dir: `here` is not an absolute path"],
        );
    }
}
