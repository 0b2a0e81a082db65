// File servers: a folder with generated pages, and web/ from the disk in front of a citetap (so that no build is needed).

import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { web } from './paths.mjs';

const TYPES = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml', '.json': 'application/json', '.png': 'image/png', '.webp': 'image/webp',
};

// The content security policy of citetap's pages.
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

/** Serves a folder and the `pages` of a test, a map from path to { html, headers }. */
export function files(folder, pages = new Map()) {
  const serving = listen((request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    if (pathname === '/favicon.ico') return response.writeHead(204).end();
    const page = pages.get(pathname);
    if (page === undefined) return send(response, folder, decodeURIComponent(pathname));
    response.writeHead(200, { 'content-type': TYPES['.html'], ...page.headers });
    response.end(page.html);
  });
  return serving;
}

/** Serves web/ from the disk, and proxies all else to the citetap at `behind`. */
export function fromDisk(behind) {
  return listen((request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    const name = pathname === '/' ? 'index.html' : pathname === '/component.js' || (pathname.startsWith('/console/') && path.extname(pathname)) ? pathname : null;
    if (name) {
      const open = pathname === '/component.js' ? { 'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin' } : {};
      return send(response, web, name, { 'content-security-policy': CSP, 'x-content-type-options': 'nosniff', ...open });
    }
    const proxied = http.request(new URL(request.url, behind), { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
      answer.on('aborted', () => response.destroy());
    });
    proxied.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    response.on('close', () => proxied.destroy());
    request.pipe(proxied);
  });
}
