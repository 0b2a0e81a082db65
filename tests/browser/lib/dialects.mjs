// Encodes answers in the upstreams' dialects, as lists of frames: text, a pause in milliseconds, or an async function to await.

/** A new id for each answer, because answers with the same id share a record. */
let last = 4_100_000_000_000_000n;
const fresh = () => String((last += 7n));

/**
 * @typedef {{url?: string, title?: string, snippet?: string, site?: string, date?: string, icon?: string, index?: number}} Source
 * @typedef {{deltas: (string | number | Function)[], sources?: Source[], queries?: string[], summary?: string, thinking?: string,
 *   sourcesAt?: 'first' | 'last', end?: 'complete' | 'cut' | 'error', error?: string, stages?: object[], conversation?: string,
 *   model?: string}} Answer
 */

const frame = (id, event, data) => `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;

/** Doubao's web chat. @param {Answer} answer */
export function doubao(answer) {
  const { sources = [], queries = ['a query'], thinking, sourcesAt = 'first', end = 'complete' } = answer;
  const [message, conversation] = [fresh(), answer.conversation ?? fresh()];
  let id = 0;
  const next = (event, data) => frame(id++, event, data);
  const patch = (block) =>
    next('STREAM_CHUNK', { message_id: message, patch_op: [{ patch_object: 1, patch_type: 1, patch_value: { content_block: [block] } }] });
  const text = (block_id, text, parent_id) => patch({ block_type: 10000, block_id, parent_id, content: { text_block: { text } } });
  const cards = sources.map((source, at) => ({
    text_card: {
      id: fresh(), index: source.index ?? at + 1, title: source.title, url: source.url, summary: source.snippet, sitename: source.site,
      logo_url: source.icon, doc_id: `doc-${message}-${at}`, publish_time_second: source.date,
    },
  }));
  const search = patch({
    block_type: 10025, block_id: fresh(),
    content: { search_query_result_block: { summary: answer.summary ?? `Searched, read ${sources.length} sources`, queries, results: cards, search_type: 1 } },
    is_finish: true,
  });

  const out = [
    next('SSE_HEARTBEAT', {}),
    next('STREAM_MSG_NOTIFY', {
      content: { content_type: 9999, content_block: [] },
      meta: { message_id: message, conversation_id: conversation, section_id: conversation, user_type: 2, index_in_conv: 5, bot_id: 'b-1' },
    }),
  ];
  if (thinking) {
    const block = fresh();
    out.push(patch({ block_type: 10040, block_id: block, content: { thinking_block: { streaming_title: answer.thinkingTitle ?? 'Thinking' } } }));
    out.push(text(fresh(), thinking, block));
    out.push(patch({ block_type: 10040, block_id: block, content: { thinking_block: { finish_title: 'Thought for a moment' } }, is_finish: true }));
  }
  if (sources.length && sourcesAt === 'first') out.push(search);
  let begun = false;
  for (const delta of answer.deltas) {
    if (typeof delta !== 'string') out.push(delta);
    else if (begun) out.push(next('CHUNK_DELTA', { text: delta }));
    else out.push(text(fresh(), delta)), (begun = true);
  }
  if (sources.length && sourcesAt === 'last') out.push(search);
  if (end === 'error') out.push(next('STREAM_ERROR', { error_code: 710022004, error_msg: answer.error ?? 'rate limited' }));
  if (end === 'complete') {
    out.push(next('SSE_REPLY_END', { end_type: 1, msg_finish_attr: { msgid: message, brief: 'brief' } }));
    out.push(next('SSE_REPLY_END', { end_type: 3 }));
  }
  return out;
}

/** Chat completions. @param {Answer} answer */
export function openai(answer) {
  const { sources = [], thinking, sourcesAt = 'first', end = 'complete' } = answer;
  const head = { id: `chatcmpl-${fresh()}`, object: 'chat.completion.chunk', created: 1768380000, model: answer.model ?? 'scripted' };
  const chunk = (delta, finish_reason = null, more = {}) =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, finish_reason }], ...more })}\n\n`;
  const search_results = sources.map((source) => ({ title: source.title, url: source.url, date: source.date ?? null, snippet: source.snippet }));
  const out = [chunk({ role: 'assistant', content: '' })];
  if (thinking) out.push(chunk({ content: '', reasoning_content: thinking }));
  if (sources.length && sourcesAt === 'first') out.push(chunk({ content: '' }, null, { search_results }));
  for (const delta of answer.deltas) out.push(typeof delta === 'string' ? chunk({ content: delta }) : delta);
  if (end === 'error') out.push(`data: ${JSON.stringify({ error: { code: 502, message: answer.error ?? 'Provider disconnected' } })}\n\n`);
  if (end === 'complete') {
    out.push(chunk({}, 'stop', sources.length && sourcesAt === 'last' ? { search_results } : {}));
    out.push('data: [DONE]\n\n');
  }
  return out;
}

/** Tencent Lexiang's questions and answers. @param {Answer} answer */
export function tencent(answer) {
  const { sources = [], end = 'complete' } = answer;
  const id = fresh().padStart(32, '0');
  const line = (more, event = '') =>
    `${event}data:${JSON.stringify({
      completion_id: id, session_id: '', processes: { stage: '', message: '', delta_content: '', content: '' },
      delta_content: '', content: '', finish_reason: '', is_stop: false, answer_source: '', additional_content: null, ...more,
    })}\n\n`;
  const stages = answer.stages ?? [{ stage: 'internal_searching', message: 'Searching', detail: { space_name: 'space' } }];
  const chunks = sources.map((source, at) => ({
    block_id: '', content: source.snippet, file_type: 'md', target_id: `${id}-${at}`, target_type: 'kb_entry', title: source.title, url: source.url,
    space_info: { id: 's', name: source.site ?? 'space' },
  }));
  const out = stages.map((stage) => line({ processes: { delta_content: '', content: '', ...stage } }));
  if (chunks.length) {
    out.push(line({
      processes: { stage: 'finished_internal_searching', message: `Found ${chunks.length}`, delta_content: '', content: '', detail: { doc_count: chunks.length } },
      additional_content: { context_limit_reference_chunks_top_n: 9, reference_chunks: chunks },
    }));
  }
  for (const delta of answer.deltas) out.push(typeof delta === 'string' ? line({ delta_content: delta }) : delta);
  if (end === 'complete') {
    const docs = chunks.map(({ target_id, target_type, title, url, file_type }) => ({ block_id: '', file_type, target_id, target_type, title, url }));
    out.push(line({
      content: answer.deltas.filter((delta) => typeof delta === 'string').join(''), finish_reason: 'stop', is_stop: true, answer_source: 'knowledge',
      additional_content: { reference_docs: docs, scenario: 'qa' },
    }, 'event:finish\n'));
  }
  return out;
}
