//! A report of real runs in a real browser: Chromium, driven through chromedriver. It is light
//! and dark and legible in both, fits narrow windows and paper, its figures have sizes and their
//! words stay inside, nothing goes wrong in the console and nothing is fetched.
#![cfg(feature = "browser")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "runs/rig.rs"]
#[allow(dead_code, reason = "what tests of runs need")]
mod rig;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rig::Folder;
use serde_json::{Value, json};

/// Ways of looking: colour scheme, medium, and the ground that is to be seen.
const LOOKS: [(&str, &str, &str); 3] = [
    ("light", "screen", "rgb(255, 255, 255)"),
    ("dark", "screen", "rgb(20, 24, 31)"),
    ("dark", "print", "rgb(255, 255, 255)"),
];

/// Colours as numbers from 0 to 255, and the contrast of two of them by WCAG's formula.
const CONTRAST: &str = "
    const parts = colour => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
    const light = colour => {
        const [r, g, b] = parts(colour).map(part => {
            part /= 255;
            return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => {
        const [low, high] = [light(a), light(b)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const ground = getComputedStyle(document.body).backgroundColor;
";

/// A browser; ends with the test.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    fn start(folder: &Folder) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver (Debian: chromium-driver)");
        let said = BufReader::new(driver.stdout.take().unwrap());
        let started = "started successfully on port ";
        let line = said.lines().map(Result::unwrap).find(|line| line.contains(started)).unwrap();
        let port = line.split(started).nth(1).unwrap().trim_end_matches('.').parse().unwrap();
        let mut browser = Self { driver, port, session: String::new() };
        let profile = format!("--user-data-dir={}", folder.0.join("profile").display());
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            profile.as_str(),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = browser.call("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// A call of the driver; what it answers.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut bytes = vec![0; length];
        answer.read_exact(&mut bytes).unwrap();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {answer}");
        answer["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn script(&self, text: &str) -> Value {
        self.post("execute/sync", &json!({"script": text, "args": []}))
    }

    /// A command of the browser's own protocol.
    fn set(&self, command: &str, params: &Value) {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": params}));
    }

    fn look(&self, scheme: &str, medium: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.set("Emulation.setEmulatedMedia", &json!({"media": medium, "features": features}));
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        self.post("se/log", &json!({"type": kind})).as_array().unwrap().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Serves one page at any path; what was asked for.
fn serve(page: String) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            if reader.read_line(&mut first).unwrap_or(0) == 0 {
                continue;
            }
            let mut line = first.clone();
            while !line.trim().is_empty() {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
            }
            seen.lock().unwrap().push(first.trim().to_owned());
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\
                 \r\nConnection: close\r\n\r\n{page}",
                page.len()
            );
        }
    });
    (port, asked)
}

/// A small io500.
const IO500: &str = "[global]\ndatadir = data\nresultdir = results\n[debug]\nstonewall-time = 9\n\
                     [ior-easy]\nblockSize = 4m\ntransferSize = 1m\n[ior-hard]\nsegmentCount = 50\n\
                     [mdtest-easy]\nn = 300\n[mdtest-hard]\nn = 300\n";

/// A page of real runs with every kind of figure.
fn page(folder: &Folder) -> String {
    let measured = |name: &str, line: &str| {
        let output = folder.run(&format!("--quiet --json {line}"));
        assert!(output.status.success(), "{line}: {output:?}");
        std::fs::write(folder.0.join(name), output.stdout).unwrap();
    };
    for ranks in [1, 2] {
        for transfer in ["16k", "64k"] {
            let name = format!("ior-{ranks}-{transfer}.json");
            measured(&name, &format!("-np {ranks} ior -w -r -F -b 1m -t {transfer} -i 2 -o f"));
        }
    }
    measured("long.json", "-np 3 ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 3 -o <b>f&amp;");
    measured("many.json", "-np 100 ior -w -a DUMMY -b 1m -t 4k -o f");
    measured("md.json", "-np 2 mdtest -n 50 -i 3 -d x");
    std::fs::write(folder.0.join("c.ini"), IO500).unwrap();
    folder.works("-np 2 io500 c.ini --timestamp T");
    let ior = "ior-1-16k.json ior-1-64k.json ior-2-16k.json ior-2-64k.json";
    folder.works(&format!(
        "report {ior} long.json many.json md.json results/T/result.json -o page.html"
    ));
    std::fs::read_to_string(folder.0.join("page.html")).unwrap()
}

/// Figures: all of them are seen, and their words are inside.
fn figures(browser: &Browser, html: &str) {
    let seen = browser.script(
        "return [...document.querySelectorAll('figure > svg')].map(svg => {
            const box = svg.getBoundingClientRect();
            const outside = [...svg.querySelectorAll('text')].filter(text => {
                const it = text.getBoundingClientRect();
                return it.left < box.left - 1 || it.right > box.right + 1
                    || it.top < box.top - 1 || it.bottom > box.bottom + 1;
            });
            const shapes = 'g path, g circle, g rect, g polygon';
            return {
                width: box.width, height: box.height,
                title: svg.querySelector('title').textContent,
                label: svg.getAttribute('aria-labelledby').split(' ')
                    .every(id => document.getElementById(id)?.textContent.length > 3),
                shapes: svg.querySelectorAll(shapes).length,
                outside: outside.map(text => text.textContent),
            };
        });",
    );
    let seen = seen.as_array().unwrap();
    assert_eq!(seen.len(), html.matches("<figure").count());
    let titles: Vec<&str> = seen.iter().map(|one| one["title"].as_str().unwrap()).collect();
    for wanted in ["Bandwidth over processes", "Bandwidth over transfer size", "Spread over ranks"]
    {
        assert!(titles.contains(&wanted), "{titles:?}");
    }
    assert!(titles.contains(&"Rates over time") && titles.contains(&"Metadata rates (ops/s)"));
    for one in seen {
        let number = |name: &str| one[name].as_f64().unwrap();
        // A single bar is flat.
        let height = if number("shapes") > 1.0 { 50.0 } else { 15.0 };
        assert!(number("width") > 250.0 && number("height") > height, "{one}");
        assert!(number("shapes") >= 1.0 && one["label"] == true, "{one}");
        assert_eq!(one["outside"], json!([]), "{one}");
    }
}

/// What is read and what is drawn stands out from the ground.
fn legible(browser: &Browser, look: &str) {
    let text = browser.script(&format!(
        "{CONTRAST} return [...document.querySelectorAll('h1, h2, p, td, th, a, li, dt, dd, figcaption')]
            .filter(one => one.checkVisibility())
            .map(one => [contrast(getComputedStyle(one).color, ground), one.outerHTML.slice(0, 80)])
            .filter(one => one[0] < 4.5);"
    ));
    assert_eq!(text, json!([]), "{look}");
    let drawn = browser.script(&format!(
        "{CONTRAST} return [...document.querySelectorAll('figure svg g')]
            .map(one => [contrast(getComputedStyle(one).color, ground), one.getAttribute('class')])
            .filter(one => one[0] < 3);"
    ));
    assert_eq!(drawn, json!([]), "{look}");
    let words = browser.script(&format!(
        "{CONTRAST} return [...document.querySelectorAll('figure svg text')]
            .filter(one => contrast(getComputedStyle(one).fill, ground) < 4.5).length;"
    ));
    assert_eq!(words, 0, "{look}");
}

#[test]
fn a_report_is_looked_at() {
    let folder = Folder::new();
    let html = page(&folder);
    let (port, asked) = serve(html.clone());
    let browser = Browser::start(&folder);
    browser.set(
        "Emulation.setDeviceMetricsOverride",
        &json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false}),
    );
    browser.post("url", &json!({"url": format!("http://127.0.0.1:{port}/report.html")}));
    assert_eq!(browser.script("return document.title"), "Benchmark report");
    assert_eq!(browser.script("return document.scripts.length"), 0);
    for (scheme, medium, ground) in LOOKS {
        browser.look(scheme, medium);
        let found = browser.script("return getComputedStyle(document.body).backgroundColor");
        assert_eq!(found, ground, "{scheme} {medium}");
        legible(&browser, &format!("{scheme} {medium}"));
    }
    browser.look("light", "screen");
    figures(&browser, &html);
    let wide = "return document.documentElement.scrollWidth <= window.innerWidth";
    assert_eq!(browser.script(wide), true);
    let paper = browser.post("print", &json!({"page": {"width": 21.0, "height": 29.7}}));
    let paper = paper.as_str().unwrap();
    assert!(paper.starts_with("JVBERi0") && paper.len() > 40_000, "a PDF: {}", paper.len());
    browser.set(
        "Emulation.setDeviceMetricsOverride",
        &json!({"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": true}),
    );
    assert_eq!(browser.script(wide), true, "a narrow window");
    figures(&browser, &html);

    let console = browser.log("browser");
    assert!(console.is_empty(), "{console:?}");
    assert_eq!(*asked.lock().unwrap(), ["GET /report.html HTTP/1.1"]);
    let own = format!("http://127.0.0.1:{port}/report.html");
    let mut requests = Vec::new();
    for entry in browser.log("performance") {
        let event: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
        let (event, params) = (&event["message"]["method"], &event["message"]["params"]);
        // The browser's own first page asks for things of its own.
        if event == "Network.requestWillBeSent" && params["documentURL"] == own.as_str() {
            requests.push(params["request"]["url"].as_str().unwrap().to_owned());
        }
    }
    requests.retain(|url| !url.starts_with("data:"));
    assert_eq!(requests, [own]);
}
