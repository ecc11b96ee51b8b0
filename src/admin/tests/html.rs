//! The pages as they are served.

use super::*;

#[tokio::test]
async fn pages_refer_only_to_what_is_served_here() {
    let admin = start(Access::ReadWrite, "").await;
    let mut seen = 0;
    for page in ["/routes", "/manual", "/manual/team/x", "/plain"] {
        let reply = admin.get(page).await;
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8", "{page}");
        for attribute in [" href=\"", " src=\""] {
            for part in reply.body.split(attribute).skip(1) {
                let target = part.split('"').next().unwrap();
                assert!(target.starts_with('/') && !target.starts_with("//") || target == "#main", "{target}");
                if target.contains("/assets/") {
                    let reply = admin.get(target).await;
                    assert_eq!(reply.status, 200, "{target}");
                    assert!(!reply.header("content-type").is_empty());
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 14);
}

#[tokio::test]
async fn nothing_configured_or_asked_for_becomes_markup() {
    let evil = "\"'><script>alert(1)</script>";
    let mut config = config(Access::ReadWrite, "");
    config.title = evil.into();
    config.color = evil.into();
    config.source_link =
        SourceLink { enabled: true, new_tab: false, scheme: evil.into(), host: evil.into(), port: evil.into() };
    let admin = start_with(config, true).await;
    for target in ["/routes", "/manual/%22%27%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E"] {
        let body = admin.get(target).await.body;
        assert!(!body.contains("<script>") && !body.contains("alert(1)<"), "{body}");
        assert!(body.contains("<title>ferrio - &#34;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>"), "{body}");
        assert!(body.contains("class=\"bar light-green\""), "{body}");
    }
    let body = admin.get("/manual/%3Cb%3E").await.body;
    assert!(body.contains("data-suffix=\"/&lt;b&gt;\""), "{body}");
}

#[tokio::test]
async fn the_plain_page_has_the_routes_as_text() {
    let admin = start(Access::ReadOnly, "/lb").await;
    admin
        .world
        .routes("route add web /<b> http://10.0.0.1:80/ opts \"strip=/x\"\nroute add web /<b> http://10.0.0.2:80/");
    let body = admin.get("/lb/plain").await.body;
    assert!(body.contains("<td>/&lt;b&gt;</td><td>web</td><td>http://10.0.0.1:80/</td>"), "{body}");
    assert!(body.contains("<td>strip=/x</td><td>50.00%</td>") && !body.contains("<script"), "{body}");
    for page in pages::PAGES {
        let reply = admin.get(&format!("/lb{page}")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/html; charset=utf-8"), "{page}");
    }
}

#[tokio::test]
async fn title_of_the_pages() {
    let admin = start(Access::ReadWrite, "").await;
    assert!(admin.get("/routes").await.body.contains("<title>ferrio</title>"));
}
