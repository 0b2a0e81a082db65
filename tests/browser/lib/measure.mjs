// Measures smoothness of a page: the longest main-thread task, and the longest time without a frame.

/** Starts the measurement. */
export const measure = (page) =>
  page.evaluate(() => {
    globalThis.smooth = { tasks: [], gap: 0, frames: 0 };
    new PerformanceObserver((list) => globalThis.smooth.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask', buffered: false });
    let last = performance.now();
    const frame = (now) => {
      globalThis.smooth.gap = Math.max(globalThis.smooth.gap, now - last);
      last = now;
      globalThis.smooth.frames++;
      globalThis.smooth.going = requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });

/** Ends the measurement. The browser reports only tasks of 50 ms and more. */
export const measured = (page) =>
  page.evaluate(() => {
    cancelAnimationFrame(globalThis.smooth.going);
    const { tasks, gap, frames } = globalThis.smooth;
    return { longest: Math.max(0, ...tasks), tasks: tasks.length, gap: Math.round(gap), frames };
  });

function print(what, { longest, tasks, gap, frames }) {
  console.log(`${what}: longest main-thread task ${longest ? `${Math.round(longest)} ms (${tasks} of 50 ms or more)` : 'under 50 ms'}, longest time between frames ${gap} ms, ${frames} frames`);
}

const MOST_TRIES = 3;

/** Measures up to three times until the limit holds, because other processes may interfere; returns the best result. */
export async function smoothly(what, limit, run) {
  let best;
  for (let tries = 0; tries < MOST_TRIES && !(best?.longest < limit); tries++) {
    // Other processes may be done by then.
    if (tries) await new Promise((done) => setTimeout(done, 1000));
    const smooth = await run();
    print(what, smooth);
    if (!best || smooth.longest < best.longest) best = smooth;
  }
  return best;
}
