//! Addresses of the internet, told from those of this machine, of its neighbours and of its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// True for an address that belongs to a host of the public internet. False for what the registries of IANA keep for
/// special purposes, for IPv4 within IPv6 however it is written, and for the metadata services of clouds.
///
/// Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries, and RFC 5214 for ISATAP.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// True for an address of this machine, public ones too. Nothing is sent.
fn is_own(address: IpAddr) -> bool {
    // Addresses of documentation, which no machine has.
    let (any, nobody): (IpAddr, IpAddr) = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let binds = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    // Some systems bind to addresses that they do not have. What they send to their own ones comes from these.
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    binds(address) && (!binds(nobody) || source().is_ok_and(|source| source.ip() == address))
}

/// The first address that is neither public nor opened by `is_open`. One is enough to close a host: which of its
/// addresses a connection takes is not known before.
pub(crate) fn first_closed(
    found: impl IntoIterator<Item = IpAddr>,
    is_open: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    found
        .into_iter()
        .map(|address| address.to_canonical())
        .find(|address| !(is_public(*address) && !is_own(*address) || is_open(*address)))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    // Azure's platform answers at an address that looks public.
    const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    let special = matches!(
        address.octets(),
        [0 | 10 | 127 | 224.., ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    );
    !special && address != AZURE
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let is_global = matches!(address.segments(), [0x2000..=0x3fff, ..]);
    // Teredo and 6to4 hold an IPv4 address, as an interface of ISATAP does; the others are documentation and the like.
    let special = matches!(
        address.segments(),
        [0x2001, 0..=0x1ff | 0xdb8, ..]
            | [0x2002, ..]
            | [0x3fff, 0..=0xfff, ..]
            | [_, _, _, _, 0 | 0x200, 0x5efe, ..]
    );
    is_global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_34_an_address_of_this_machine_is_known_whatever_it_looks_like() {
        for (address, own) in
            [("127.0.0.1", true), ("127.9.9.9", true), ("192.0.2.1", false), ("240.0.0.1", false)]
        {
            assert_eq!(is_own(address.parse().unwrap()), own, "{address}");
        }
    }

    #[test]
    fn attack_34_only_addresses_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.215.14",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "168.63.129.15",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "2606:4700::5efe:7f00:1",
            "2606:4700::200:5efe:a00:1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }
}
