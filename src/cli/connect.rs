//! Which cluster is meant and how answers shall look: flags over the environment over the config file over defaults.

use std::{fs, path::PathBuf, time::Duration};

use clap::Args;
use serde::Deserialize;

use crate::cli::{
    failure::{Failure, code},
    screen::Format,
    spec::parse_error,
};
use crate::model::UserName;
use crate::rpc::{
    api::Consistency,
    client::{Client, ClientConfig},
};

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Controllers to ask, any of them: host:7070,host:7070
    #[arg(short = 'H', long, global = true, env = "DRIGS_CONTROLLERS", value_name = "LIST")]
    controllers: Option<String>,
    /// Who may ask; rather in DRIGS_TOKEN or a file, for others can see the words of a command
    #[arg(
        long,
        global = true,
        env = "DRIGS_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        conflicts_with = "token_file"
    )]
    token: Option<String>,
    /// A file with the token
    #[arg(long, global = true, env = "DRIGS_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How answers look
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    pub(super) output: Option<Format>,
    /// Leave out the names of columns
    #[arg(long, global = true)]
    pub(super) no_header: bool,
    /// Be content with what the asked controller knows, even without a leader
    #[arg(long, global = true)]
    stale: bool,
    /// How long to try [default: 10s]
    #[arg(long, global = true, value_name = "TIME", value_parser = crate::cli::spec::seconds)]
    deadline: Option<crate::model::Millis>,
}

/// `$DRIGS_CONFIG`, or `drigs/config.yaml` where the desktop keeps such files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    controllers: Option<Controllers>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    user: Option<String>,
    output: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Controllers {
    List(Vec<String>),
    Text(String),
}

const DEFAULT_CONTROLLER: &str = "127.0.0.1:7070";

/// Everything settled.
pub struct Connection {
    client: ClientConfig,
    pub user: UserName,
    pub format: Format,
    pub no_header: bool,
    pub consistency: Consistency,
}

impl Connection {
    /// # Errors
    /// An address or the token is malformed.
    pub fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.client.clone())?)
    }
}

impl Global {
    /// # Errors
    /// The config file or the token file cannot be read, or says something wrong.
    pub fn connect(self) -> Result<Connection, Failure> {
        let config = Config::load()?;
        let format = match (self.output, &config.output) {
            (Some(format), _) => format,
            (None, Some(name)) => clap::ValueEnum::from_str(name, true).map_err(|_| {
                Failure::usage(format!(
                    "the config file's output `{name}` is not table, wide, json or yaml"
                ))
            })?,
            (None, None) => Format::default(),
        };
        let controllers = match (self.controllers, config.controllers) {
            (Some(list), _) | (None, Some(Controllers::Text(list))) => split(&list),
            (None, Some(Controllers::List(list))) => list,
            (None, None) => vec![DEFAULT_CONTROLLER.to_owned()],
        };
        let token = match (self.token, self.token_file) {
            (Some(token), _) => Some(token),
            (None, Some(file)) => Some(read_token(&file)?),
            (None, None) => match (config.token, config.token_file) {
                (Some(token), _) => Some(token),
                (None, Some(file)) => Some(read_token(&file)?),
                (None, None) => None,
            },
        };
        let deadline = self.deadline.map_or(ClientConfig::DEFAULT_DEADLINE, |it| {
            it.to_duration().max(Duration::from_millis(1))
        });
        Ok(Connection {
            client: ClientConfig {
                controllers,
                token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
                deadline,
            },
            user: config.user.map_or_else(present_user, UserName::new),
            format,
            no_header: self.no_header,
            consistency: if self.stale { Consistency::Stale } else { Consistency::Linearizable },
        })
    }
}

impl Config {
    fn load() -> Result<Config, Failure> {
        let (path, must_exist) = match std::env::var_os("DRIGS_CONFIG") {
            Some(path) => (PathBuf::from(path), true),
            None => match config_home() {
                Some(home) => (home.join("drigs/config.yaml"), false),
                None => return Ok(Config::default()),
            },
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {
                return Ok(Config::default());
            }
            Err(error) => {
                return Err(Failure::usage(format!("cannot read {}: {error}", path.display())));
            }
        };
        if text.trim().is_empty() {
            return Ok(Config::default());
        }
        let file = path.display().to_string();
        serde_saphyr::from_str(&text).map_err(|error| Failure::from(parse_error(&file, &error)))
    }
}

fn config_home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))
}

fn read_token(file: &std::path::Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        Failure::new(code::USAGE, format!("cannot read the token in {}: {error}", file.display()))
    })
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// Who runs this program. A controller that knows the token's owner takes that one instead.
fn present_user() -> UserName {
    let named = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let name = named.into_iter().find(|name| !name.is_empty());
    UserName::new(name.unwrap_or_else(|| account(rustix::process::getuid().as_raw())))
}

/// The account's name, wherever this machine keeps its accounts (a file, a directory service).
fn account(uid: u32) -> String {
    let known = nix::unistd::User::from_uid(uid.into());
    known.ok().flatten().map_or_else(|| format!("uid-{uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_names() {
        assert_eq!(account(0), "root");
        assert_eq!(account(4_000_000_017), "uid-4000000017");
    }
}
