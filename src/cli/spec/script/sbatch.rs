//! Slurm's options in ours. What has no counterpart is warned about, never silently dropped and never fatal.

/// One line's options, translated.
#[derive(Debug, Default)]
pub struct Translated {
    pub flags: Vec<String>,
    pub warnings: Vec<String>,
}

/// How one of Slurm's options is to be understood.
enum Meaning {
    /// The same under another (or the same) name.
    Flag(&'static str),
    /// One that takes no value.
    Switch(&'static str),
    Gres,
    Signal,
    Export,
    /// Some of its values mean that there is no limit.
    Time,
    /// `COUNT`; a range asks for its least.
    Nodes,
    /// Has no meaning here, for the reason given.
    Ignored(&'static str),
}

use Meaning::{Export, Flag, Gres, Ignored, Nodes, Signal, Switch, Time};

/// Long name, short name, meaning.
const OPTIONS: &[(&str, char, Meaning)] = &[
    ("job-name", 'J', Flag("--job-name")),
    ("partition", 'p', Flag("--queue")),
    ("priority", ' ', Flag("--priority")),
    ("cpus-per-task", 'c', Flag("--cpus-per-task")),
    ("mem", ' ', Flag("--mem")),
    ("gpus", 'G', Flag("--gpus")),
    ("gpus-per-node", ' ', Flag("--gpus-per-node")),
    ("gres", ' ', Gres),
    ("nodes", 'N', Nodes),
    ("time", 't', Time),
    ("array", 'a', Flag("--array")),
    ("dependency", 'd', Flag("--dependency")),
    ("begin", 'b', Flag("--begin")),
    ("hold", 'H', Switch("--hold")),
    ("chdir", 'D', Flag("--chdir")),
    ("workdir", ' ', Flag("--chdir")),
    ("signal", ' ', Signal),
    ("export", ' ', Export),
    ("requeue", ' ', Ignored("an attempt that the cluster lost is always tried again")),
    ("no-requeue", ' ', Ignored("an attempt that the cluster lost is always tried again")),
    ("output", 'o', Ignored("`drigs logs` shows what the job writes")),
    ("error", 'e', Ignored("`drigs logs` shows what the job writes")),
    ("open-mode", ' ', Ignored("`drigs logs` shows what the job writes")),
    ("ntasks", 'n', Ignored("the script runs once on each node")),
    ("ntasks-per-node", ' ', Ignored("the script runs once on each node")),
    ("mail-type", ' ', Ignored("no mail is sent")),
    ("mail-user", ' ', Ignored("no mail is sent")),
    ("account", 'A', Ignored("jobs are charged to their user")),
    ("qos", 'q', Ignored("queues and priorities take its place")),
    ("constraint", ' ', Ignored("say `#DRIGS --label KEY=VALUE`")),
    ("exclusive", ' ', Ignored("GPUs are exclusive anyway; ask for the CPUs and memory needed")),
    ("mem-per-cpu", ' ', Ignored("say `#DRIGS --mem` for the whole node")),
    ("mem-per-gpu", ' ', Ignored("say `#DRIGS --mem` for the whole node")),
    ("cpus-per-gpu", ' ', Ignored("say `#DRIGS --cpus-per-task`")),
];

/// Slurm's options that stand alone; every other one takes a value.
const ALONE: [&str; 4] = ["hold", "requeue", "no-requeue", "exclusive"];

pub fn translate(words: &[String]) -> Translated {
    let mut translated = Translated::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word.starts_with('#') {
            break;
        }
        let Some((name, meaning, attached)) = option(word) else {
            let takes_next = !word.contains('=') && word.starts_with('-');
            let value = takes_next.then(|| words.clone().next()).flatten();
            if value.is_some_and(|next| !next.starts_with('-')) {
                words.next();
            }
            translated.warnings.push(format!("`{word}` is not supported, and ignored"));
            continue;
        };
        let value = match attached {
            Some(value) => Some(value),
            None if ALONE.contains(&name) => None,
            None => words.next(),
        };
        translated.add(word, meaning, value.unwrap_or_default());
    }
    translated
}

/// The option that `word` begins, and the value that is attached to it.
fn option(word: &str) -> Option<(&'static str, &'static Meaning, Option<&str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let (known, _, meaning) = OPTIONS.iter().find(|(known, ..)| *known == name)?;
        return Some((known, meaning, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let letter = letters.next().filter(|letter| *letter != ' ')?;
    let (known, _, meaning) = OPTIONS.iter().find(|(_, short, _)| *short == letter)?;
    let rest = letters.as_str();
    Some((known, meaning, (!rest.is_empty()).then_some(rest.trim_start_matches('='))))
}

impl Translated {
    fn add(&mut self, word: &str, meaning: &Meaning, value: &str) {
        match meaning {
            Flag(flag) => self.flag(flag, value),
            Switch(flag) => self.flags.push((*flag).to_owned()),
            Nodes => self.flag("--nodes", value.split('-').next().unwrap_or(value)),
            Time if ["0", "-1", "UNLIMITED", "INFINITE"].contains(&value) => {}
            Time => self.flag("--time", value),
            Gres => self.gres(word, value),
            Signal => self.signal(value),
            Export => self.export(value),
            Ignored(why) => {
                let option = word.split('=').next().unwrap_or(word);
                self.warnings.push(format!("`{option}` is ignored: {why}"));
            }
        }
    }

    fn flag(&mut self, flag: &str, value: &str) {
        self.flags.push(format!("{flag}={value}"));
    }

    /// `gpu:a100:2` on each node.
    fn gres(&mut self, word: &str, value: &str) {
        match value.strip_prefix("gpu:") {
            Some(gpus) => self.flag("--gpus-per-node", gpus),
            None if value == "gpu" => self.flag("--gpus-per-node", "1"),
            None => self.warnings.push(format!("`{word}` is ignored: only `gpu` is known")),
        }
    }

    /// `B:USR1@60`: the signal, and how long before the end it comes.
    fn signal(&mut self, value: &str) {
        let value = value.rsplit(':').next().unwrap_or(value);
        match value.split_once('@') {
            Some((signal, seconds)) => {
                self.flag("--signal", signal);
                self.flag("--grace", seconds);
            }
            None => self.flag("--signal", value),
        }
    }

    /// `ALL` is so common in scripts that it is no error, but secrets do not travel along.
    fn export(&mut self, value: &str) {
        let named: Vec<&str> = value.split(',').filter(|word| *word != "ALL").collect();
        if named.len() < value.split(',').count() {
            self.warnings.push(String::from(
                "`--export=ALL` is ignored: jobs inherit only what is named (`#DRIGS --export NAME,…`)",
            ));
        }
        if !named.is_empty() {
            self.flag("--export", &named.join(","));
        }
    }
}
