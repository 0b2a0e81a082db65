export const PATIENCE = 10_000;

/** Waits until `check` gives something true. */
export async function until(check, what = 'it', patience = PATIENCE) {
  const deadline = Date.now() + patience;
  for (;;) {
    const got = await check();
    if (got) return got;
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
