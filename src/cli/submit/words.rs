//! What follows a script belongs to the script, flags or not: the command line's reader is told so by a `--` of ours.

use std::ffi::OsString;

use clap::Command;

use crate::cli::submit::is_spec_file;

/// `drigs submit -G 1 job.sh --wait` becomes `drigs submit -G 1 job.sh -- --wait`. A spec file takes no arguments, so what
/// follows it are flags of ours.
pub fn script_arguments_apart(mut words: Vec<OsString>, mut root: Command) -> Vec<OsString> {
    root.build();
    let Some(verb) = first_bare(&words, 1, &root) else { return words };
    let submit = root.find_subcommand("submit").filter(|_| words[verb] == "submit");
    let file = submit.and_then(|submit| first_bare(&words, verb + 1, submit));
    let Some(file) = file else { return words };
    let takes_flags = words[file].to_str().is_none_or(is_spec_file) || words[file] == "-";
    let has_more = words.get(file + 1).is_some_and(|next| next != "--");
    if has_more && !takes_flags {
        words.insert(file + 1, OsString::from("--"));
    }
    words
}

/// The first word that is neither a flag nor a flag's value, unless `--` comes before it.
fn first_bare(words: &[OsString], from: usize, command: &Command) -> Option<usize> {
    let mut place = from;
    while let Some(word) = words.get(place) {
        let word = word.to_str().unwrap_or("bare");
        if word == "--" {
            return None;
        }
        if word == "-" || !word.starts_with('-') {
            return Some(place);
        }
        place += if takes_next(word, command) { 2 } else { 1 };
    }
    None
}

/// Whether the word after this flag is its value.
fn takes_next(word: &str, command: &Command) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        let mut flags = command.get_arguments();
        return flags.any(|flag| {
            let named = flag.get_long() == Some(long)
                || flag.get_all_aliases().is_some_and(|aliases| aliases.contains(&long));
            named && flag.get_action().takes_values()
        });
    }
    // In a cluster such as `-WG2` the first flag with a value takes the rest of the word, or else the next word.
    let letters: Vec<char> = word.chars().skip(1).collect();
    let with_value = letters.iter().position(|letter| {
        let mut flags = command.get_arguments();
        flags.any(|flag| flag.get_short() == Some(*letter) && flag.get_action().takes_values())
    });
    with_value.is_some_and(|place| place + 1 == letters.len())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Arguments;

    fn check(line: &str, expected: &str) {
        let words = line.split(' ').map(OsString::from).collect();
        let apart = script_arguments_apart(words, Arguments::command());
        let apart: Vec<&str> = apart.iter().filter_map(|word| word.to_str()).collect();
        assert_eq!(apart.join(" "), expected);
    }

    #[test]
    fn a_scripts_arguments_are_its_own() {
        check("drigs submit job.sh", "drigs submit job.sh");
        check("drigs submit job.sh --wait x", "drigs submit job.sh -- --wait x");
        check("drigs submit job.sh -- x", "drigs submit job.sh -- x");
        check("drigs submit -J a.sh -WG 2 b.sh c", "drigs submit -J a.sh -WG 2 b.sh -- c");
        check("drigs submit -G2 --mem=1G a.sh -c 2", "drigs submit -G2 --mem=1G a.sh -- -c 2");
        check("drigs submit --partition x a.sh b", "drigs submit --partition x a.sh -- b");
        check("drigs -H c1:7070 submit a.sh b", "drigs -H c1:7070 submit a.sh -- b");
        check("drigs submit job.yaml --wait", "drigs submit job.yaml --wait");
        check("drigs submit - --wait", "drigs submit - --wait");
        check("drigs submit -G 1 -- a.sh b", "drigs submit -G 1 -- a.sh b");
        check("drigs jobs submit x", "drigs jobs submit x");
    }
}
