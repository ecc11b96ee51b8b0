//! From root to somebody who may do less, once the sockets are bound (`runtime.user`).

use std::ffi::CString;

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist, setgid, setgroups, setuid};

/// Who to become.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    user: Uid,
    group: Gid,
    /// Supplementary ones.
    groups: Vec<Gid>,
}

impl Identity {
    /// Nothing is to be done, and nobody need be root for it.
    pub fn is_ours(&self) -> bool {
        Uid::effective() == self.user && Gid::effective() == self.group
    }
}

/// Becomes `who` (`user` or `user:group`, names or numbers), in every thread and for good. Empty: stays who we are.
pub fn become_user(who: &str) -> anyhow::Result<()> {
    if who.is_empty() {
        return Ok(());
    }
    let identity = find(who).with_context(|| format!("runtime.user = {who:?}"))?;
    if identity.is_ours() {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        bail!("runtime.user = {who:?}: only root can become somebody else; start as that user, without runtime.user");
    }
    // The C library changes all threads: a kernel thread that kept root would be a way back.
    setgroups(&identity.groups).context("runtime.user: cannot change the groups")?;
    setgid(identity.group).context("runtime.user: cannot change the group")?;
    setuid(identity.user).context("runtime.user: cannot change the user")?;
    if !identity.user.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        bail!("runtime.user: root can be had back, so nothing was given up");
    }
    tracing::info!("Running as UID={} GID={} from here on (runtime.user = {who})", identity.user, identity.group);
    Ok(())
}

/// Looks for a user and a group on this machine.
pub fn find(who: &str) -> anyhow::Result<Identity> {
    let (name, group) = match who.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (who, None),
    };
    let known = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number))?,
        Err(_) => Some(User::from_name(name)?.with_context(|| format!("there is no user {name:?}"))?),
    };
    let user = match (&known, name.parse()) {
        (Some(known), _) => known.uid,
        (None, Ok(number)) => Uid::from_raw(number),
        (None, Err(_)) => bail!("there is no user {name:?}"),
    };
    let group = match group {
        Some(group) => match group.parse() {
            Ok(number) => Gid::from_raw(number),
            Err(_) => Group::from_name(group)?.with_context(|| format!("there is no group {group:?}"))?.gid,
        },
        None => known.as_ref().context("a user that has no entry needs a group: USER:GROUP")?.gid,
    };
    let groups = match &known {
        Some(known) => getgrouplist(&CString::new(known.name.as_str())?, group)?,
        None => vec![group],
    };
    Ok(Identity { user, group, groups })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_by_name_and_number() {
        let root = find("root").unwrap();
        assert_eq!((root.user.as_raw(), root.group.as_raw()), (0, 0));
        assert_eq!(find("0:0").unwrap().user.as_raw(), 0);
        let nobody = find("54321:54322").unwrap();
        assert_eq!((nobody.user.as_raw(), nobody.groups.as_slice()), (54321, &[Gid::from_raw(54322)][..]));
        for (bad, why) in
            [("no-such-user", "no user"), ("root:no-such-group", "no group"), ("54321", "USER:GROUP"), ("", "no user")]
        {
            assert!(format!("{:#}", find(bad).unwrap_err()).contains(why), "{bad}");
        }
        become_user("").unwrap();
    }
}
