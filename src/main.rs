//! The command line: read the configuration, run the application, tell how it ended.

use std::process::ExitCode;

use ferrio::app;
use ferrio::config::{self, Outcome};

fn main() -> ExitCode {
    rustls::crypto::aws_lc_rs::default_provider().install_default().expect("nothing was installed before");
    let log = app::log::init();
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "dev") {
        return app::dev::main(arguments, &log);
    }
    match config::load(std::env::args_os(), std::env::vars_os(), app::SUBCOMMANDS) {
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
