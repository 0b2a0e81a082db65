// Runs citetap, each in a folder of its own and on a free port of the loopback address.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { citetap, made } from './paths.mjs';

const START = 20_000;
const STOP = 10_000;

/** What the caller's shell says must not change what is tested. */
function environment() {
  const kept = Object.entries(process.env).filter(([name]) => !/^(CITETAP|TAVILY)|_proxy$|^PORT$|^RUST_LOG$/i.test(name));
  return Object.fromEntries(kept);
}

/** Starts `citetap ARGUMENTS`; gives its address, which `announced` finds in its output, and how to stop it. */
async function start(name, args, announced, files = {}) {
  fs.mkdirSync(path.join(made, 'run'), { recursive: true });
  const folder = fs.mkdtempSync(path.join(made, 'run', `${name}-`));
  for (const [file, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, file), text);
  const child = spawn(citetap, args, { cwd: folder, env: environment(), stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stdout.on('data', (data) => (said += data));
  child.stderr.on('data', (data) => (said += data));
  const gone = new Promise((resolve) => child.once('exit', resolve));

  const deadline = Date.now() + START;
  let found;
  while (!(found = announced.exec(said))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`citetap ${args.join(' ')} did not start:\n${said}`);
    }
    await pause(20);
  }
  return {
    origin: `http://${found[1]}`,
    said: () => said,
    async stop() {
      if (child.exitCode === null) child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), STOP);
      await gone;
      clearTimeout(late);
      fs.rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The demo. A speed of 1 is as in life; tests are in more of a hurry. */
export function demo({ speed = 20, history, freshIds = true } = {}) {
  const args = ['demo', '--listen', '127.0.0.1:0', '--store', 'demo.db', '--speed', String(speed)];
  if (history !== undefined) args.push('--history', String(history));
  if (freshIds) args.push('--fresh-ids');
  return start('demo', args, /http:\/\/(127\.0\.0\.1:\d+)/);
}

const sha256 = (text) => createHash('sha256').update(text).digest('hex');
const quoted = (text) => JSON.stringify(text);

/**
 * A `citetap serve` in front of an upstream: each route is a script of that upstream by its name.
 * @param {{name: string, upstream: string, provider?: string, request?: string, questions?: string[], extra?: string}[]} routes
 */
export function serve(routes, { tenants = {}, store = 'memory:', cors = [] } = {}) {
  let toml = `listen = "127.0.0.1:0"\nstore = ${quoted(store)}\n[timeouts]\ndrain = "1s"\ncommit = "5s"\nconnect = "2s"\n`;
  if (cors.length) toml += `[cors]\norigins = [${cors.map(quoted).join(', ')}]\n`;
  for (const { name, upstream, provider = 'auto', request = 'openai', questions, extra = '' } of routes) {
    toml += `[[routes]]\nname = ${quoted(name)}\nprefix = "/${name}"\nupstream = ${quoted(upstream)}\nprovider = ${quoted(provider)}\n`;
    if (questions) toml += `questions = [${questions.map(quoted).join(', ')}]\n`;
    toml += `${extra}\n[routes.openai]\nmodels = ["${name}-model"]\nrequest = ${quoted(request)}\n`;
    if (request === 'template') {
      toml += `path = "/chat/completion"\ntemplate = '{"messages":[{"content":"{{query}}"}]}'\n`;
    }
  }
  for (const [name, key] of Object.entries(tenants)) {
    toml += `[[tenants]]\nname = ${quoted(name)}\nkey_sha256 = "${sha256(key)}"\n`;
  }
  return start('serve', ['serve', '--config', 'citetap.toml', '--log-format', 'json'], /"listen":"([\d.:]+)"/, { 'citetap.toml': toml });
}
