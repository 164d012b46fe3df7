//! `meridian cluster init`: the certificates of a cluster's members, and the authority that makes them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use cluster::{Authority, Role};

use crate::console::tell;
use crate::failure::Failure;

/// Which certificates are made.
#[derive(Args)]
pub struct InitArguments {
    /// The directory of the authority, which is made if there is none. Keep it where no member runs.
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// The names of workers, as in w1 or w1.example.org.
    #[arg(value_name = "NAME")]
    workers: Vec<String>,
    /// The name of a front end; an authority that is new makes `front-end` by default.
    #[arg(long, value_name = "NAME")]
    front_end: Vec<String>,
    /// The name of an operator, who may use `meridian cluster`; an authority that is new makes `operator` by default.
    #[arg(long, value_name = "NAME")]
    operator: Vec<String>,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Make other certificates in the place of those that there are: of the members that are named, or of all if none is.
    #[arg(long)]
    renew: bool,
}

/// Makes them.
pub fn run(arguments: &InitArguments) -> Result<(), Failure> {
    let authority = Authority::open(&arguments.directory)?;
    let mut members = named(arguments);
    if authority.is_new() {
        for (role, usual) in [(Role::FrontEnd, "front-end"), (Role::Operator, "operator")] {
            if !members.iter().any(|(known, _)| *known == role) {
                members.push((role, usual.to_owned()));
            }
        }
    } else if members.is_empty() && arguments.renew {
        members = authority.members()?;
    }
    if members.is_empty() {
        return Err(Failure::new(format!(
            "there is an authority in {} already: name the members for which it shall make certificates, or give --renew",
            arguments.directory.display()
        )));
    }
    let mut text = String::new();
    if authority.is_new() {
        let dir = arguments.directory.display();
        writeln!(
            text,
            "The authority is in {dir}. Whoever has {dir}/ca.key can make members: no member needs it."
        )?;
    }
    for (role, name) in members {
        let dir = authority.make_member(role, &name, arguments.days, arguments.renew)?;
        writeln!(text, "{}", said(role, &name, &dir))?;
    }
    tell(&text)
}

fn named(arguments: &InitArguments) -> Vec<(Role, String)> {
    let of = |role: Role, names: &[String]| -> Vec<(Role, String)> {
        names.iter().map(|name| (role, name.clone())).collect()
    };
    [
        of(Role::FrontEnd, &arguments.front_end),
        of(Role::Worker, &arguments.workers),
        of(Role::Operator, &arguments.operator),
    ]
    .concat()
}

/// What is done with a certificate.
fn said(role: Role, name: &str, dir: &Path) -> String {
    let dir = dir.display();
    let command = match role {
        Role::FrontEnd => "meridian serve --data DIR --cluster ADDR",
        Role::Worker => "meridian worker --data DIR --join ADDR",
        Role::Operator => "meridian cluster status --cluster ADDR",
    };
    format!(
        "{dir}: {} {name}, for\n  {command} --cluster-tls {dir}",
        role.name()
    )
}
