import { describe, expect, mock, test } from 'claude-code/testing'

const MESSAGES = [
  { role: 'user' as const, text: 'Mend it.', toolUses: [], handle: 'h0' },
  { role: 'assistant' as const, text: '', toolUses: [{ tool_use_id: 'a', tool: 'Bash', input: {} }], handle: 'h1' },
  { role: 'user' as const, text: '', toolUses: [], toolResults: [{ tool_use_id: 'a', text: 'xxx', isError: false }], handle: 'h2' },
]

const marker = (id: string) => ({
  role: 'user' as const,
  text: `quoted: [jev-engine: … intact as jx-ffffffffffffffff: …]`,
  toolUses: [],
  toolResults: [{ tool_use_id: 'm', text: `[jev-engine: result of Bash left out; the original is intact as ${id}: call …]`, isError: false }],
})
const MARKED = [marker('jx-0123456789abcdef'), marker('jx-aaaaaaaaaaaaaaaa'), ...MESSAGES]

const REPLACE = {
  v: 1,
  act: 'replace',
  reason: 'done',
  steps: [{ keep: 0 }, { merge: [1] }, { results: [[2, 0, 'x']] }],
  gone: [],
  toast: '3 of 3 messages kept',
  log: ['decisions: t1'],
}

type World = { answers: Record<string, unknown>; asked: [string, any][]; lines: string[]; debug: string[]; toasts: string[]; compacted: number; percent: number }

const worldOf = (on: any, answers: Record<string, unknown>, percent = 10): World => {
  const world: World = { answers, asked: [], lines: [], debug: [], toasts: [], compacted: 0, percent }
  mock.clock(on)
  mock.env(on, {})
  on('session.id', () => ({ value: 'session-1' }))
  on('session.cwd', () => ({ value: '/work' }))
  on('session.messages', () => ({ value: MARKED }))
  on('session.usage', () => {
    const context = { window: 200_000, tokens: 2_000 * world.percent, percent: world.percent }
    return { value: { startedAt: 0, context, rateLimits: [] } }
  })
  on('settings.read', () => ({ value: {} }))
  on('ui.log', ($: unknown, e: any) => {
    ;(e.to === 'debug' ? world.debug : world.lines).push(e.text)
    return { value: undefined }
  })
  on('ui.toast', ($: unknown, e: any) => {
    world.toasts.push(e.text)
    return { value: undefined }
  })
  on('process.run', ($: unknown, e: any) => {
    world.asked.push([e.argv.slice(1).join(' '), e.init])
    if (world.answers['start'] === undefined) return { value: { exitCode: 1, stdout: '', stderr: 'no engine here' } }
    return { value: { exitCode: 0, stdout: JSON.stringify({ socket: '/run/engine.sock' }), stderr: '' } }
  })
  on('http.fetch', ($: unknown, e: any) => {
    const route = e.url.split('/').pop()
    world.asked.push([route, JSON.parse(e.init.body)])
    const answer = world.answers[route]
    return { value: { status: answer ? 200 : 500, ok: Boolean(answer), headers: {}, text: JSON.stringify(answer) } }
  })
  on('session.compact', ($: unknown, e: any) => {
    world.compacted += 1
    return { messages: e.messages ?? MESSAGES }
  })
  return world
}

describe('session.compact', () => {
  test('builds what the engine answers, and says so', async ($, on) => {
    const world = worldOf(on, { start: true, compact: REPLACE, applied: { known: true } })

    const done = await $.session.compact({ trigger: 'manual', messages: MESSAGES })

    expect(done.messages?.length).toBe(3)
    expect(done.messages?.[2]?.toolResults).toEqual([{ tool_use_id: 'a', text: 'x', isError: false }])
    expect(world.compacted).toBe(0)
    expect(world.toasts).toEqual(['3 of 3 messages kept'])
    expect(world.lines).toContain('decisions: t1')
    expect(world.asked.map(([what]) => what)).toEqual(['serve --ensure', 'compact', 'applied'])
    expect(world.asked[1]?.[1].window_tokens).toBe(200_000)
  })

  test('without an engine the built-in summary works, with the reason', async ($, on) => {
    const world = worldOf(on, {})

    await $.session.compact({ trigger: 'manual', messages: MESSAGES })

    expect(world.compacted).toBe(1)
    expect(world.toasts.join()).toContain('no engine here')
  })

  test('an answer that loses a row is not built', async ($, on) => {
    const world = worldOf(on, { start: true, compact: { ...REPLACE, steps: [{ keep: 0 }] }, applied: {} })

    await $.session.compact({ trigger: 'auto', messages: MESSAGES })

    expect(world.compacted).toBe(1)
    expect(world.toasts.join()).toContain('accounts for 1 of 3')
  })

  test('what is handed over is the shorter conversation', async ($, on) => {
    const handed = { ...REPLACE, act: 'summarise', steps: [{ keep: 0 }, { keep: 1 }, { results: [[2, 0, 'x']] }] }
    const world = worldOf(on, { start: true, compact: handed, applied: {} })

    const done = await $.session.compact({ trigger: 'auto', messages: MESSAGES })

    expect(world.compacted).toBe(1)
    expect(done.messages?.[2]?.toolResults?.[0]?.text).toBe('x')
  })

  const LEFT = { v: 1, act: 'skip', reason: 'nothing may go', steps: null, toast: 'left as it is', log: ['left as it is', 'decisions: none'] }

  test('that nothing may go is said to who asked', async ($, on) => {
    const world = worldOf(on, { start: true, compact: LEFT })

    const done = await $.session.compact({ trigger: 'manual', messages: MESSAGES })

    expect(done.skip).toBe('nothing may go')
    expect(world.toasts).toEqual(['left as it is'])
    expect(world.lines).toContain('decisions: none')
  })

  test('where nobody asked it is said to the debug log only', async ($, on) => {
    const world = worldOf(on, { start: true, compact: { ...LEFT, stats: { outcome: 'not_due' } } })

    const done = await $.session.compact({ trigger: 'plugin', messages: MESSAGES })

    expect(done.skip).toBe('nothing may go')
    expect(world.toasts).toEqual([])
    expect(world.lines).toEqual([])
    expect(world.debug).toEqual(['left as it is'])
    expect(world.compacted).toBe(0)
  })

  test('that the judge failed is said in any case', async ($, on) => {
    const world = worldOf(on, { start: true, compact: { ...LEFT, stats: { outcome: 'failed' } } })

    await $.session.compact({ trigger: 'plugin', messages: MESSAGES })

    expect(world.toasts).toEqual(['left as it is'])
  })

  const FAULTS = {
    'no engine': {},
    'an engine that fails': { start: true, compact: { ...LEFT, act: 'summarise', reason: 'StoreError' }, applied: {} },
    'an answer without steps': { start: true, compact: { ...REPLACE, steps: null }, applied: {} },
    'an answer that loses a row': { start: true, compact: { ...REPLACE, steps: [{ keep: 0 }] }, applied: {} },
  }
  for (const [name, answers] of Object.entries(FAULTS)) {
    test(`${name} leaves a compaction that nobody asked for out, with the reason`, async ($, on) => {
      const world = worldOf(on, answers)

      const done = await $.session.compact({ trigger: 'plugin', messages: MESSAGES })

      expect(world.compacted).toBe(0)
      expect(done.skip).toContain('left as it is: ')
      expect(world.toasts).toEqual([done.skip])
    })
  }

  test('nothing is computed ahead', async ($, on) => {
    const world = worldOf(on, { start: true, compact: REPLACE })

    const done = await $.session.compact({ trigger: 'precompute', messages: MESSAGES })

    expect(done.skip).toContain('jev-engine')
    expect(world.asked).toEqual([])
  })
})

describe('turn.complete', () => {
  const TURN = { answer: 'ok', durationMs: 1, tools: [], usage: {} } as any

  test('compacts from the chosen share of the window on', async ($, on) => {
    const world = worldOf(on, { start: true, compact: REPLACE, applied: {} }, 60)
    on('turn.complete', () => ({ text: 'ok' }))

    await $.turn.complete(TURN)

    // The kit gives a compaction of a plugin no messages: that the engine was turned to is all there is to see.
    expect(world.asked.length).toBeGreaterThan(0)
  })

  test('leaves a window alone that is not so full', async ($, on) => {
    const world = worldOf(on, { start: true, compact: REPLACE, applied: {} }, 59)
    on('turn.complete', () => ({ text: 'ok' }))

    await $.turn.complete(TURN)

    expect(world.asked).toEqual([])
  })
})

describe('after a compaction of its own that came to nothing', () => {
  const TURN = { answer: 'ok', durationMs: 1, tools: [], usage: {} } as any
  // The kit gives a compaction of a plugin no messages, so each one fails here and says so once.
  const tried = async ($: any, world: World, shares: number[]) => {
    const counts: number[] = []
    for (const percent of shares) {
      world.percent = percent
      await $.turn.complete(TURN)
      counts.push(world.toasts.length)
    }
    return counts
  }

  test('the next one waits for growth', async ($, on) => {
    const world = worldOf(on, { start: true, applied: {} })
    on('turn.complete', () => ({ text: 'ok' }))

    expect(await tried($, world, [60, 60, 61, 64, 65, 65, 69, 70])).toEqual([1, 1, 1, 1, 2, 2, 2, 3])
  })

  test('growth counts from the smallest share since', async ($, on) => {
    const world = worldOf(on, { start: true, applied: {} })
    on('turn.complete', () => ({ text: 'ok' }))

    expect(await tried($, world, [90, 70, 74, 75])).toEqual([1, 1, 1, 2])
  })

  test('a window that was emptied since begins anew', async ($, on) => {
    const world = worldOf(on, { start: true, applied: {} })
    on('turn.complete', () => ({ text: 'ok' }))

    expect(await tried($, world, [62, 20, 60])).toEqual([1, 1, 2])
  })

  test('another session begins anew', async ($, on) => {
    const world = worldOf(on, { start: true, applied: {} })
    on('turn.complete', () => ({ text: 'ok' }))
    on('session.start', ($: unknown, e: any) => ({ cwd: e.cwd }) as any)
    on('tool.register', () => ({ value: undefined }))
    on('command.register', () => ({ value: undefined }))
    await tried($, world, [70])

    await $.session.start({ source: 'resume', cwd: '/work' } as any)

    expect(await tried($, world, [70])).toEqual([2])
  })
})

describe('the tool', () => {
  test('gives the engine’s text, also where it has none', async ($, on) => {
    const world = worldOf(on, { start: true, tool: { text: 'the original' } })
    const call = { tool: 'mcp__jev-engine__expand', tool_use_id: 't', id: 'jx-0123456789abcdef' }

    const found = await $.tool.call(call as any)

    expect((found as any).result).toBe('the original')
    expect(world.asked[1]?.[1].marker).toBe('jx-0123456789abcdef')
  })

  test('names no marker that only a text quotes', async ($, on) => {
    const world = worldOf(on, { start: true, tool: { text: 'unknown' } })

    await $.tool.call({ tool: 'mcp__jev-engine__expand', tool_use_id: 't', id: 'jx-ffffffffffffffff' } as any)

    expect(world.asked[1]?.[1].marker).toBe(undefined)
  })
})
