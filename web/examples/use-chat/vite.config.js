import react from '@vitejs/plugin-react';

// The page and citetap look like one origin, so there is no CORS to set up. In production a reverse proxy does the same.
const citetap = process.env.CITETAP_URL ?? 'http://127.0.0.1:8787';
const proxy = Object.fromEntries(['/v1', '/render', '/citations', '/component.js'].map((path) => [path, citetap]));

export default { plugins: [react()], server: { proxy }, preview: { proxy } };
