// A client of tests/interop.rs: PUTs with Node's fetch, or with its node:http2.
//
//     node client.mjs fetch|http2 CA_FILE URL TOKEN:SIZE...
//
// Each PUT gives one line of JSON: the protocol where the library reports it, the status, the headers,
// the body, and the SHA-256 of what was sent; or the error, where there was no answer to be read. Bodies
// are made while they are sent. The PUTs follow each other on one connection, where that is kept.
//
// fetch speaks HTTP/1.1 alone, does not say so, and trusts what NODE_EXTRA_CA_CERTS names. It sends a body
// that is made on the way in chunks. node:http2 speaks HTTP/2 alone.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate } from "node:timers/promises";

const BLOCK = 64 * 1024;

/** A body of so many bytes, no two blocks of which are equal. */
function* bodyOf(size, hash) {
  for (let number = 0; number < size; number += BLOCK) {
    const block = Buffer.alloc(Math.min(BLOCK, size - number), number % 251);
    if (block.length >= 8) {
      block.writeBigUInt64LE(BigInt(number));
    }
    hash.update(block);
    yield block;
  }
}

/** Piece by piece, as from a file, so that an answer that comes meanwhile is noticed. */
async function* slowly(pieces) {
  for (const piece of pieces) {
    await setImmediate();
    yield piece;
  }
}

async function withFetch(url, token, size, hash) {
  const response = await fetch(url, {
    method: "PUT",
    headers: { "Fencing-Token": token },
    body: slowly(bodyOf(size, hash)),
    duplex: "half",
  });
  const headers = Object.fromEntries(response.headers);
  return { status: response.status, headers, body: await response.text() };
}

async function withHttp2(session, path, token, size, hash) {
  const stream = session.request({
    ":method": "PUT",
    ":path": path,
    "fencing-token": token,
    "content-length": size,
  });
  const answered = new Promise((resolve, reject) => {
    let head;
    let body = "";
    stream.setEncoding("utf8");
    stream.on("response", (headers) => (head = headers));
    stream.on("data", (part) => (body += part));
    stream.on("end", () => resolve({ head, body }));
    stream.on("error", reject);
    stream.on("close", () => reject(new Error(`the stream was closed, code ${stream.rstCode}`)));
  });
  // An answer may end the stream before all is sent; whether there was one is seen below.
  const sent = pipeline(Readable.from(bodyOf(size, hash)), stream, { end: true }).catch(() => {});
  const { head, body } = await answered;
  await sent;
  const { ":status": status, ...headers } = head;
  return { protocol: "2", status, headers, body };
}

const [library, ca, url, ...steps] = process.argv.slice(2);
const { origin, pathname } = new URL(url);
const session = library === "http2" ? http2.connect(origin, { ca: readFileSync(ca) }) : null;
for (const step of steps) {
  const [token, size] = step.split(":");
  const hash = createHash("sha256");
  let answer;
  try {
    answer = session
      ? await withHttp2(session, pathname, token, Number(size), hash)
      : await withFetch(url, token, Number(size), hash);
    answer.sent = hash.digest("hex");
  } catch (error) {
    answer = { error: `${error}, ${error.cause ?? "no cause"}` };
  }
  console.log(JSON.stringify(answer));
}
session?.close();
