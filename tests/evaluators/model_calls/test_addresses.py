"""Models are called at addresses of servers, never where a cloud hands out its secrets."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from evaluators.model_calls.addresses import Networks, address_problem


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "http://localhost:11434/v1",
        "http://127.0.0.1:8000",
        "http://10.0.0.7/v1",
        "http://[::1]:8000/v1",
        "http://[::ffff:10.0.0.7]/v1",
        "http://[64:ff9b::8.8.8.8]/v1",
        "http://[64:ff9b:1::808:808]/v1",
        "http://[2002:808:808::1]/v1",
        "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/v1",
        "http://[2606:4700::1111]/v1",
        "http://[fd12:3456::7]/v1",
        "http://gpu-box:8000/v1",
        "https://models.example.com:8443/openai/v1",
        "https://modèles.example.com/v1",
    ],
)
def test_servers_near_and_far_are_allowed(url: str) -> None:
    assert address_problem(url) == ""


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2:80",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[::ffff:169.254.169.254]",
        "[2002:a9fe:a9fe::]",
        "[fd00:ec2::254]",
        "[fd00:ec2::23]",
        "[fd20:ce::254]",
        "[::a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b::100.100.100.200]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[64:ff9b:1:ffff::169.254.169.254]",
        "[64:ff9b:1:a9fe:a9:fe00::]",
        "[64:ff9b:1:6464:64:c800::]",
        "[64:ff9b:1:a9:fe:a9fe::]",
        "[64:ff9b:1:0:a9:fea9:fe00::]",
        "[::ffff:0:a9fe:a9fe]",
        "[::ffff:100.100.100.200]",
        "[2002:a9fe:a9fe::1]",
        "[2002:6464:64c8::]",
        "[2001:0:4136:e378:8000:63bf:5601:5601]",
        "[2001:0:a9fe:a9fe:8000:63bf:3fff:fdd2]",
        "169\u3002254\u3002169\u3002254",
        "\uff11\uff16\uff19.254.169.254",
        "\u246069.254.169.254",
        "169\u00ad.254.169.254",
        "metadata\u3002google\u3002internal",
        "100.100.100.200",
        "168.63.129.16",
        "metadata.google.internal",
        "METADATA.google.internal.",
        "metadata",
    ],
)
def test_link_local_and_metadata_addresses_are_refused_in_every_spelling(host: str) -> None:
    assert "metadata" in address_problem(f"http://{host}/v1")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "http://"),
        ("api.openai.com/v1", "http://"),
        ("file:///etc/passwd", "http://"),
        ("https:///v1", "http://"),
        ("http://%31%36%39.254.169.254/", "without %"),
        (f"http://{'x' * 64}.example.com/", "looked up"),
        ("http://a..example.com/", "looked up"),
        ("https://user:secret@example.com", "password"),
        ("https://example.com/v1?key=1", "?"),
        ("https://example.com/#v1", "#"),
        ("https://example .com", "spaces"),
        ("https://example.com:port", "host or port"),
        ("https://[::1", "host or port"),
        ("http://0.0.0.0:8000", "one server"),
        ("http://224.0.0.1", "one server"),
        ("http://239.255.255.250:1900", "one server"),
        ("http://255.255.255.255", "one server"),
        ("http://4294967295", "one server"),
        ("http://[ff02::1]", "one server"),
        ("http://[::ffff:255.255.255.255]", "one server"),
        ("http://[64:ff9b::224.0.0.1]", "one server"),
        ("http://[::]", "one server"),
        ("http://[2002:e000:1::]", "one server"),
    ],
)
def test_what_is_no_base_url_is_refused_with_what_would_be_right(url: str, words: str) -> None:
    assert words in address_problem(url)


def test_the_address_of_an_agent_is_asked_for_with_one_of_an_agent():
    assert "https://agent.example.com/answer" in address_problem("agent", may_have_query=True)


NETWORKS = tuple(map(ip_network, ("10.1.0.0/16", "fd12:3456::/32")))


@pytest.mark.parametrize(
    ("host", "networks", "is_open"),
    [
        ("10.1.2.3", NETWORKS, True),
        ("[::ffff:10.1.2.3]", NETWORKS, True),
        ("[fd12:3456::7]", NETWORKS, True),
        ("10.2.0.1", NETWORKS, False),
        ("[::ffff:10.2.0.1]", NETWORKS, False),
        ("[64:ff9b::10.2.0.1]", NETWORKS, False),
        ("127.0.0.1", NETWORKS, False),
        ("[::1]", NETWORKS, False),
        ("100.64.0.1", NETWORKS, False),
        ("192.168.1.1", (), False),
        ("93.184.216.34", (), True),
        ("[2606:4700::1111]", (), True),
        ("agent.example", (), True),
    ],
)
def test_private_addresses_are_called_in_open_networks_alone(
    host: str, networks: Networks, is_open: bool
) -> None:
    problem = address_problem(f"http://{host}/ask", may_have_query=True, networks=networks)

    assert ("private network" not in problem) is is_open
    assert bool(problem) is not is_open
