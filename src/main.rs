//! The command line: read the configuration, run the application, tell how it ended.

use std::process::ExitCode;

use ferrio::config::{self, Outcome};
use ferrio::{app, command};

fn main() -> ExitCode {
    rustls::crypto::aws_lc_rs::default_provider().install_default().expect("nothing was installed before");
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    // Before the log: what a command has to say is its answer.
    if let Some(command) = first.to_str().and_then(command::find) {
        return command::main(command, arguments);
    }
    let log = app::log::init();
    if first == "dev" {
        return app::dev::main(arguments, &log);
    }
    match config::load(std::env::args_os(), std::env::vars_os(), &app::subcommands()) {
        Ok(Outcome::Run { config, warnings }) => app::start(*config, warnings, &log),
        Ok(Outcome::Print { text, stdout, code }) => {
            if stdout {
                print!("{text}");
            } else {
                eprint!("{text}");
            }
            ExitCode::from(code)
        }
        Err(failure) => app::refuse(&failure, &log),
    }
}
