import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport } from 'ai';
import { useEffect, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';

const textOf = (message) => message.parts.filter((part) => part.type === 'text').map((part) => part.text).join('');

// With this profile citetap sends the AI SDK's stream for any upstream.
const transport = new DefaultChatTransport({
  api: '/v1/chat/completions',
  headers: { 'x-citetap-profile': 'ai-sdk' },
  prepareSendMessagesRequest: ({ messages }) => ({
    body: {
      model: 'doubao-demo-en',
      stream: true,
      messages: messages.map((message) => ({ role: message.role, content: textOf(message) })),
    },
  }),
});

/** One answer: citetap's element renders the text with its chips and hover cards. */
function Answer({ message, streaming }) {
  const answer = useRef(null);
  const text = textOf(message);
  // The complete record, which chips need: numbers, titles, excerpts. It comes once, before the end.
  const record = message.parts.find((part) => part.type === 'data-citations')?.data;
  // The AI SDK's own parts, which are enough for plain links.
  const sources = message.parts.filter((part) => part.type === 'source-url');

  useEffect(() => {
    const added = text.slice(answer.current.text.length);
    if (added) answer.current.append(added);
  }, [text]);
  useEffect(() => {
    if (record) answer.current.record = record;
  }, [record]);
  useEffect(() => {
    if (!streaming) answer.current.finish();
  }, [streaming]);

  return (
    <article>
      <cite-answer ref={answer} base="/" nolist="" />
      {sources.length > 0 && (
        <details className="sources">
          <summary>{sources.length} sources</summary>
          <ul>
            {sources.map((source) => (
              <li key={source.sourceId}>
                <a href={source.url} target="_blank" rel="noopener noreferrer nofollow">{source.title ?? source.url}</a>
              </li>
            ))}
          </ul>
        </details>
      )}
    </article>
  );
}

function Chat() {
  const [input, setInput] = useState('What should I check before installing a heat pump in a cold climate?');
  const [searching, setSearching] = useState('');
  const { messages, sendMessage, status, error } = useChat({
    transport,
    // Stages come as data parts that are not kept in the message.
    onData: (part) => part.type === 'data-status' && setSearching(part.data.queries?.join(' · ') ?? part.data.message ?? ''),
    onFinish: () => setSearching(''),
  });
  const busy = status === 'submitted' || status === 'streaming';

  const ask = (event) => {
    event.preventDefault();
    sendMessage({ text: input });
    setInput('');
  };

  return (
    <>
      <h1>useChat with citations</h1>
      <form onSubmit={ask}>
        <input aria-label="Question" value={input} onChange={(event) => setInput(event.target.value)} />
        <button disabled={busy || !input}>Ask</button>
      </form>
      {messages.map((message, at) =>
        message.role === 'user' ? (
          <p key={message.id} className="question">{textOf(message)}</p>
        ) : (
          <Answer key={message.id} message={message} streaming={busy && at === messages.length - 1} />
        ),
      )}
      <p className="status" role="status">{error ? `It failed: ${error.message}` : searching ? `Searching: ${searching}` : busy ? 'Thinking…' : ''}</p>
    </>
  );
}

createRoot(document.getElementById('root')).render(<Chat />);
