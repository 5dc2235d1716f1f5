// Hands a compaction to jev-engine, a program of this machine, and builds what it answers. Whatever goes wrong, the
// built-in summary does its work as if this plugin were not there.
import type { EngineInterface, Register } from 'claude-code'
import { type Answer, build, slim } from './build'
import { EXPAND, SEARCH, type Link, ask, linkOf, markerIn, number, reasonOf, request } from './talk'

type $ = EngineInterface

const TOAST_MS = 15_000

function say($: $, toast: string, log: readonly string[]): void {
  $.ui.toast(toast, { timeoutMs: TOAST_MS })
  for (const line of log) $.ui.log(line)
}

async function asTool($: $, link: Link, agentId: string | undefined, tool: string, input: object): Promise<string> {
  try {
    const marker = await markerIn($, agentId, (input as { id?: string }).id)
    const answer = await ask($, link, 'tool', await request($, link, agentId, { tool, input, marker }))
    return String((answer as { text: string }).text)
  } catch (error) {
    return `[jev-engine: cannot be asked now: ${reasonOf(error)}]`
  }
}

export const register: Register = (on, options) => {
  const link = linkOf(options)
  const atPercent = number(options, 'compactAtPercent', 60)
  let isCompacting = false
  let isRefused = false

  on('session.compact', async ($, e, next) => {
    // What is computed ahead may never be used: decisions are made when they count.
    if (e.trigger === 'precompute') return { skip: 'jev-engine decides when it counts' }
    let given: object | undefined
    try {
      const { context } = await $.session.usage()
      given = await request($, link, e.agentId, {
        trigger: e.trigger,
        instructions: e.instructions,
        window_tokens: context.window,
        used_tokens: e.agentId ? undefined : context.tokens,
      })
      const answer = (await ask($, link, 'compact', { ...given, messages: slim(e.messages) })) as Answer
      const messages = answer.steps ? build(e.messages, answer) : undefined
      say($, answer.toast, answer.log)
      if (answer.act === 'skip') return { skip: answer.reason }
      if (messages) await ask($, link, 'applied', given).catch(() => undefined)
      if (answer.act === 'replace' && messages) return { messages }
      return next(messages ? { ...e, messages } : e)
    } catch (error) {
      const line = `left to the built-in summary: ${reasonOf(error)}`
      say($, line, [line])
      if (given) ask($, link, 'applied', { ...given, reason: reasonOf(error) }).catch(() => undefined)
      return next(e)
    }
  })

  on('turn.complete', async ($, e, next) => {
    const done = await next(e)
    if (atPercent <= 0 || isCompacting || isRefused || e.agentId) return done
    try {
      const { context } = await $.session.usage()
      if ((context.percent ?? 0) < atPercent) return done
      isCompacting = true
      await $.session.compact()
    } catch (error) {
      // A headless session compacts at its own threshold only; asking again would be refused again.
      isRefused = true
      $.ui.log(`no compaction by itself in this session: ${reasonOf(error)}`, { to: 'debug' })
    } finally {
      isCompacting = false
    }
    return done
  })

  on('session.start', async ($, e, next) => {
    const expand = $.tool.register({
      name: 'expand',
      description:
        'Read again, byte for byte, a tool result that was left out of this conversation to save room. ' +
        'Its place says [jev-engine: … intact as jx-…]; give that id. Long results come in pages.',
      inputSchema: {
        type: 'object',
        properties: {
          id: { type: 'string', description: 'The id in the marker, such as jx-0123456789abcdef.' },
          offset: { type: 'integer', minimum: 0, description: 'Character to begin at; 0 is the start.' },
          limit: { type: 'integer', minimum: 1, maximum: 16_000, description: 'Characters of this page.' },
        },
        required: ['id'],
      },
      isDeferred: false,
    })
    const search = $.tool.register({
      name: 'search',
      description:
        'Search the tool results that were left out of this conversation to save room. ' +
        'Answers with the best passages and the id of each original, which can be read whole by its id.',
      inputSchema: {
        type: 'object',
        properties: { query: { type: 'string', description: 'Names, paths, words of the text.' } },
        required: ['query'],
      },
      isDeferred: false,
    })
    await Promise.all([expand, search])
    await $.command.register({
      name: 'jev',
      description: 'jev-engine: how this session stands; what is out; what must stay.',
      argumentHint: '[status | out WORDS | pin PATTERN]',
    })
    return next(e)
  })

  on('tool.run', { tool: EXPAND }, async ($, e) => ({ result: await asTool($, link, e.agentId, 'expand', e) }))
  on('tool.run', { tool: SEARCH }, async ($, e) => ({ result: await asTool($, link, e.agentId, 'search', e) }))

  on('command.run', { command: 'jev' }, async ($, e) => {
    const [verb = '', ...words] = e.args.trim().split(/\s+/)
    const rest = words.join(' ')
    if (verb === 'pin') {
      return {
        text: rest
          ? `Pinned: calls with a tool, path or id like ${rest} stay as they are in this session.`
          : 'Say what must stay: /jev pin docs/spec/*, /jev pin deploy_* or /jev pin t12.',
        isTextDisplayOnly: true,
      }
    }
    try {
      const marker = await markerIn($, undefined)
      const given = await request($, link, undefined, { query: verb === 'out' ? rest : '', marker })
      const answer = await ask($, link, 'status', given)
      return { text: String((answer as { text: string }).text), isTextDisplayOnly: true }
    } catch (error) {
      return { text: `jev-engine cannot be asked: ${reasonOf(error)}`, isTextDisplayOnly: true }
    }
  })
}
