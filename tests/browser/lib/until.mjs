export const PATIENCE = 10_000;

/** Polls `check` until it returns a truthy value; returns that value. */
export async function until(check, what = 'it', patience = PATIENCE) {
  const deadline = Date.now() + patience;
  for (;;) {
    const got = await check();
    if (got) return got;
    if (Date.now() > deadline) throw new Error(`timeout: waited for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
