// Runs citetap processes, each in a new folder and on a free loopback port.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { citetap, buildFolder } from './paths.mjs';

const START = 20_000;
const STOP = 10_000;

/** The environment without settings of the caller's shell that would change the tests. */
function environment() {
  const kept = Object.entries(process.env).filter(([name]) => !/^(CITETAP|TAVILY)|_proxy$|^PORT$|^RUST_LOG$/i.test(name));
  return Object.fromEntries(kept);
}

/** Starts `citetap ARGUMENTS`; returns its origin, which the pattern `announced` finds in its output, and `stop`. */
async function start(name, args, announced, files = {}) {
  fs.mkdirSync(path.join(buildFolder, 'run'), { recursive: true });
  const folder = fs.mkdtempSync(path.join(buildFolder, 'run', `${name}-`));
  for (const [file, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, file), text);
  const child = spawn(citetap, args, { cwd: folder, env: environment(), stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (data) => (output += data));
  child.stderr.on('data', (data) => (output += data));
  const gone = new Promise((resolve) => child.once('exit', resolve));

  const deadline = Date.now() + START;
  let found;
  while (!(found = announced.exec(output))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`citetap ${args.join(' ')} did not start:\n${output}`);
    }
    await pause(20);
  }
  return {
    origin: `http://${found[1]}`,
    output: () => output,
    async stop() {
      if (child.exitCode === null) child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), STOP);
      await gone;
      clearTimeout(late);
      fs.rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Starts `citetap demo`. Speed 1 is real time. */
export function demo({ speed = 20, history, freshIds = true } = {}) {
  const args = ['demo', '--listen', '127.0.0.1:0', '--store', 'demo.db', '--speed', String(speed)];
  if (history !== undefined) args.push('--history', String(history));
  if (freshIds) args.push('--fresh-ids');
  return start('demo', args, /http:\/\/(127\.0\.0\.1:\d+)/);
}

const sha256 = (text) => createHash('sha256').update(text).digest('hex');
const quoted = (text) => JSON.stringify(text);

/**
 * Starts `citetap serve` in front of the scripted upstream, with a route per script.
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
