// Small servers for pages: a folder as it is, and web/ from the disk in front of a citetap (so that no build is needed).

import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { web } from './paths.mjs';

const TYPES = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml', '.json': 'application/json', '.png': 'image/png', '.webp': 'image/webp',
};

// What citetap says of its own pages.
export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

async function listen(handler) {
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function send(response, folder, name, headers = {}) {
  const file = path.join(folder, path.normalize(`/${name}`));
  if (!fs.existsSync(file) || !fs.statSync(file).isFile()) return response.writeHead(404).end();
  response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'application/octet-stream', 'cache-control': 'no-store', ...headers });
  response.end(fs.readFileSync(file));
}

/** The files of a folder, and pages made by the test: `pages` maps a path to HTML. No icon is asked for. */
export function files(folder, pages = new Map()) {
  const serving = listen((request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    if (pathname === '/favicon.ico') return response.writeHead(204).end();
    const made = pages.get(pathname);
    if (made === undefined) return send(response, folder, decodeURIComponent(pathname));
    response.writeHead(200, { 'content-type': TYPES['.html'], ...made.headers });
    response.end(made.html);
  });
  return serving;
}

/** web/ from the disk, all else from the citetap at `behind`. */
export function fromDisk(behind) {
  return listen((request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    const name = pathname === '/' ? 'index.html' : pathname === '/component.js' || (pathname.startsWith('/console/') && path.extname(pathname)) ? pathname : null;
    if (name) {
      const open = pathname === '/component.js' ? { 'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin' } : {};
      return send(response, web, name, { 'content-security-policy': CSP, 'x-content-type-options': 'nosniff', ...open });
    }
    const onward = http.request(new URL(request.url, behind), { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
      answer.on('aborted', () => response.destroy());
    });
    onward.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  });
}
